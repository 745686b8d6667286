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
};

#endif
