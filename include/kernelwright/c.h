/* The engine in C. */
#ifndef KERNELWRIGHT_C_H_
#define KERNELWRIGHT_C_H_

#include "kernelwright/runtime/c/c_api.h"

#endif
