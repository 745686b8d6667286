/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a finding is reported, and what the sanitizers are told about memory. */
#ifndef CULVERT_NATIVE_CHECK_H
#define CULVERT_NATIVE_CHECK_H

#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_feature(memory_sanitizer)
#include <sanitizer/msan_interface.h>
#define UNINITIALIZED(p, n) __msan_poison(p, n)
#define INITIALIZED(p, n) __msan_unpoison(p, n)
#define MUST_BE_INITIALIZED(p, n) __msan_check_mem_is_initialized(p, n)
#else
#define UNINITIALIZED(p, n) ((void)(p), (void)(n))
#define INITIALIZED(p, n) ((void)(p), (void)(n))
#define MUST_BE_INITIALIZED(p, n) ((void)(p), (void)(n))
#endif

/* Prints what was being done. */
static void describe(void);

/* A finding: libFuzzer keeps the input of a process that aborts. */
#define must(condition, ...)                                        \
	do {                                                        \
		if (!(condition)) {                                 \
			fputs("finding: " #condition ": ", stderr); \
			fprintf(stderr, __VA_ARGS__);               \
			fputc('\n', stderr);                        \
			describe();                                 \
			abort();                                    \
		}                                                   \
	} while (0)

#endif
