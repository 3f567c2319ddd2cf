// Marks the functions of the library that Python calls: plain C functions over arrays whose sizes the caller has checked.
// Each returns 0, a number that is not negative, or -1 if memory has run out.
#pragma once
#include <cstdint>
#include <exception>

#define WIDENET extern "C" __attribute__((visibility("default")))
#define OUT_OF_MEMORY \
  catch (const std::exception&) { return -1; }
