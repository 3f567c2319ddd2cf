// Marks the functions of the library that Python calls: plain C functions over arrays whose sizes the caller has checked.
#pragma once
#include <cstdint>

#define WIDENET extern "C" __attribute__((visibility("default")))
