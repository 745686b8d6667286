/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Of the kernel's structs, what several programs read: the loader finds the fields. */
#ifndef CULVERT_LIB_KERNEL_H
#define CULVERT_LIB_KERNEL_H

struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct net {
	struct ns_common ns;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} __attribute__((preserve_access_index));

#endif
