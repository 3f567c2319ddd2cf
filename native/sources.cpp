// Which sources the library was built from.
#include "export.h"

WIDENET const char* sources() { return WIDENET_SOURCES; }
