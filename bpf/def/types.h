/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Fixed-width types, for BPF and for native builds alike. */
#ifndef CULVERT_DEF_TYPES_H
#define CULVERT_DEF_TYPES_H

#include <linux/types.h>

struct in6 {
	__u8 b[16];
};

#endif
