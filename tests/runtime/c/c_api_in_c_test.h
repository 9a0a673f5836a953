/* Checks of the C ABI that are compiled as C; c_api_test.cpp runs them. 0, or the line of the check that failed. */
#ifndef KERNELWRIGHT_TESTS_C_API_IN_C_TEST_H
#define KERNELWRIGHT_TESTS_C_API_IN_C_TEST_H

#include "kernelwright/runtime/c/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

int c_prepares_and_launches(kernelwright_engine* engine);
int c_launches_a_layer_of_experts(kernelwright_engine* engine);
int c_reports_errors(kernelwright_engine* engine);
int c_structs_are_sized(kernelwright_engine* engine);
/* The engine samples every launch. */
int c_tells_operators(kernelwright_engine* engine);

#ifdef __cplusplus
}
#endif

#endif
