/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* System calls of eBPF, and how a fault ends the program. */
#ifndef CULVERT_SOFT_SYSTEM_H
#define CULVERT_SOFT_SYSTEM_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Ends the program with one line that says why, and errno where it is set. */
#define must(condition, ...)                                               \
	do {                                                               \
		if (!(condition)) {                                        \
			int failed = errno;                                \
                                                                           \
			fputs("culvert-soft: ", stderr);                   \
			fprintf(stderr, __VA_ARGS__);                      \
			if (failed)                                        \
				fprintf(stderr, ": %s", strerror(failed)); \
			fputc('\n', stderr);                               \
			exit(1);                                           \
		}                                                          \
	} while (0)

static long bpf_system(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int bpf_object_get(const char *path)
{
	union bpf_attr attr = { .pathname = (__u64)path };

	return bpf_system(BPF_OBJ_GET, &attr);
}

static long bpf_object_info(int fd, void *info, __u32 size)
{
	union bpf_attr attr = {
		.info = { .bpf_fd = fd, .info_len = size, .info = (__u64)info },
	};

	return bpf_system(BPF_OBJ_GET_INFO_BY_FD, &attr);
}

static long bpf_look_up(int fd, const void *key, void *value)
{
	union bpf_attr attr = { .map_fd = fd, .key = (__u64)key, .value = (__u64)value };

	return bpf_system(BPF_MAP_LOOKUP_ELEM, &attr);
}

static long bpf_store(int fd, const void *key, const void *value, __u64 flags)
{
	union bpf_attr attr = {
		.map_fd = fd, .key = (__u64)key, .value = (__u64)value, .flags = flags
	};

	return bpf_system(BPF_MAP_UPDATE_ELEM, &attr);
}

static __u64 clock_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

#endif
