/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Values of the maps of traffic classes (docs/adr/0024-traffic-engineering.md): see
 * tables.h. */
#ifndef CULVERT_DEF_CLASS_H
#define CULVERT_DEF_CLASS_H

#include "types.h"

#define MAX_CLASSIFIERS 256
#define MAX_CLASSES 64
#define CLASS_COLUMNS 16
#define CLASS_ROWS 8192

/* The table of a key of class_by_source: the ifindex, and above it the VLAN id (0: any
 * that has no entries) and the family. An IPv4 address is in the first octets. */
enum class_table {
	CLASS_VLAN_SHIFT = 16,
	CLASS_VLAN_MASK = 0xfff << CLASS_VLAN_SHIFT,
	CLASS_IPV4 = 1 << 30,
};

/* classifier[index]: the column of each DSCP; column 0 is best effort. An entry that
 * something names is never changed. */
struct classifier {
	__u8 column[64];
};

/* class_way[row + column]: where a packet goes, and what counts it. A word that changes
 * whole. */
struct class_way {
	__u32 policy; /* sr_policy; 0: the packet is dropped */
	__u32 class;  /* class_counter; 0: none */
};

struct target {
	__u32 kind;
	__u32 index;
	__u32 bits; /* of the prefix that leads here */
};

#endif
