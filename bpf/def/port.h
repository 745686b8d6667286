/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Values of the maps that say what may enter by an interface: see tables.h. */
#ifndef CULVERT_DEF_PORT_H
#define CULVERT_DEF_PORT_H

#include "types.h"

/* port[ifindex]: what may enter by an interface. */
enum port_flags {
	PORT_ATTACHED = 1,
	PORT_SILENT = 2,           /* a frame cannot leave where it came in: the daemon answers */
	PORT_PARTIAL_CHECKSUM = 4, /* virtual: L4 checksums may be partial */
	PORT_STEERED = 8,          /* has entries in steering_by_port */
	/* roles (port.h); a port without any is not guarded */
	PORT_N3 = 16, /* n3 or n9 */
	PORT_N6 = 32,
	PORT_N4 = 64,
	PORT_SR = 128,
	PORT_EDGE = 256,
	/* what the kernel gets, beside the services of access */
	PORT_HOST_ANY = 512,      /* everything for this host */
	PORT_HOST_FORWARD = 1024, /* packets for others */
	PORT_SOURCES = 2048,      /* has entries in class_by_source */
	PORT_TO_KERNEL = 4096,    /* a pod's: what it may send is left to the kernel */
	PORT_NEVER = 8192,        /* no port has it (express_zero); two more are of the lane */
	/* the rest: the table that steers untagged packets before the node's, which has
	 * the number of the port's ifindex, or a pod's tenant's table; 0: none */
	PORT_TABLE_SHIFT = 16,
};

/* Tables of steering of tenants, or of slices' VPNs, have numbers that no ifindex has: this,
 * and the tenant's id or the VPN's number (1 to 255). */
#define TENANT_TABLES 0xff00

/* The table that says who is inside the SR domain of a cluster, beside its prefixes in
 * settings: TARGET_MEMBER and TARGET_SID. */
#define MEMBER_TABLE TENANT_TABLES

#define PORT_ROLES (PORT_N3 | PORT_N6 | PORT_N4 | PORT_SR | PORT_EDGE)

struct port {
	__u32 flags;
	__u16 mtu;    /* of layer 3; 0: not known */
	__u8 access;     /* index; 0: no peers, no services */
	__u8 classifier; /* index, of what arrives; 0: all best effort */
	__u64 mac;    /* its own, as is_for_port() reads it; 0: not known */
	__u32 pod;    /* index of the pod behind it; 0: none */
	/* fragments that wait for the daemon, written by the data path: from where in the ring on,
	 * octets of them, and octets before; two entries in a cache line, and none in two */
	__u32 handed_since, handed, handed_before;
};

/* lost_by_device[ifindex]: the agent writes whose interface it is when it lets frames leave
 * there; the count stays when it ends that. */
struct lost {
	__u64 frames;
	__u32 netns; /* inode of its network namespace; 0: frames never left there */
	__u32 device; /* id of the map `device` that leads there */
};

/* access[index]: who may send GTP-U by ports of role n3 or n9, and which services of
 * this host may be reached. An entry that a port names is never changed. */
#define MAX_ACCESS 64
#define MAX_PEERS 16
#define MAX_SERVICES 16

struct prefix6 {
	__u64 hi, lo, mask_hi, mask_lo; /* host order */
};

struct prefix4 {
	__be32 address, mask;
};

struct service {
	__u8 protocol;
	__u8 answers; /* 1: also TCP segments with ACK from this port, to 32768 and above */
	__u16 port; /* host order; 0: the protocol has none */
};

struct access {
	__u32 peers4_count, peers6_count, services_count, pad;
	struct prefix4 peers4[MAX_PEERS];
	struct prefix6 peers6[MAX_PEERS];
	struct service service[MAX_SERVICES];
};

#endif
