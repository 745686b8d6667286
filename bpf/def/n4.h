/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Values of the maps by which the data path answers PFCP: see n4/n4.h and
 * docs/adr/0023-signalling-in-the-data-path.md. */
#ifndef CULVERT_DEF_N4_H
#define CULVERT_DEF_N4_H

#include "types.h"

enum n4_limits {
	N4_ADDRESSES = 4, /* of this node, of each family */
	N4_FARS = 4,      /* that a request updates */
	N4_PDRS = 8,      /* that a request repeats */
	N4_RULES = 4,     /* of a session that can be changed here */
	N4_ANSWERS = 8,   /* last answers that are known by their sequence numbers */
	N4_REPEATED_OCTETS = 512, /* of IEs that a request repeats */
};

/* One entry. Written by the daemon. */
struct n4_state {
	__u64 alive;      /* the daemon's last sign of life, ns, CLOCK_MONOTONIC */
	__u32 recovery;   /* its Recovery Time Stamp; 0: heartbeats are the daemon's */
	__u32 open;       /* sessions may be changed here; 0: requests are the daemon's */
	struct in6 address[N4_ADDRESSES]; /* for PFCP; IPv4-mapped for IPv4 */
	__u64 key[2];     /* of hashes of IEs; it stays as long as this table */
};

/* n4_peer[address, IPv4-mapped for IPv4]: an SMF that this node has an association with. */
struct n4_peer {
	__u32 association; /* 0: none */
	__u32 recovery;    /* the SMF's Recovery Time Stamp */
	__u64 heard;       /* when its heartbeat was last answered here, ns */
};

/* A rule, its FAR, and the rule's words for each of the FAR's actions. */
struct n4_rule {
	__u32 far; /* its ID */
	__u32 pdr;
	__u64 forward;  /* pdr's word of action and flags while it forwards; 0: not known */
	__u64 buffer;   /* the same while it buffers */
	__u32 instance; /* hash of the Network Instance that it has */
	__u16 template; /* of n4_forwarding_key; 0: it goes nowhere by GTP-U */
	__u8 destination, type; /* Destination Interface, 3GPP Interface Type (NO_TYPE: none) */
	__u8 forwards, buffers; /* Apply Actions that these words are for */
	__u8 action;    /* the Apply Action that it has */
	__u8 bar;       /* BAR ID; NO_BAR: none */
	__u8 leads;     /* the rule's word of TEID and forwarding says where the FAR forwards */
	__u8 pad[3];
};

#define N4_NONE 255 /* no type, no BAR */

/* Sequence numbers begin again after 2^24 requests of an SMF. So a session forgets its answers
 * when the newest is older than SMFs repeat a request (T1 * N1): 30 s. */
#define N4_TIME_SHIFT 32 /* 4.3 s */
#define N4_FORGOTTEN 8

/* n4_session[place of the SEID]: what was changed here is true, and the daemon learns it.
 * Whoever changes it holds `lock`. */
struct n4_session {
	__u64 lock;    /* 0: nobody's */
	__u64 seid;    /* ours; 0: no session */
	__u64 cp_seid;
	__u32 association;
	__u16 version; /* grows with each answer: answered[version] is the newest */
	__u16 when;    /* the newest answer, in 2^N4_TIME_SHIFT ns of CLOCK_MONOTONIC_COARSE */
	__u32 answered[N4_ANSWERS]; /* sequence numbers | N4_ANSWERED or N4_HANDLED */
	struct n4_rule rule[N4_RULES];
	__u64 fseid; /* hash of the CP F-SEID; 0: not known */
	__u64 pdrs;  /* hash of Update PDRs that change nothing; 0: none are known */
	__u64 left; /* N4_LEFT_TO | the newest sequence number that went to the daemon; 0: all came */
	__u64 open; /* N4_OPEN, N4_KEPT; 0: the daemon has changed the session, or is about to */
};

#define N4_OPEN 1 /* the data path may change the session */
#define N4_KEPT 2 /* only the daemon may, and no journal says what this says */

#define N4_LEFT_TO (1u << 24) /* a request is on its way to the daemon */
#define N4_ANSWERED (1u << 31) /* with Cause 1 (Request accepted) alone, here or by the daemon */
#define N4_HANDLED (1u << 30) /* otherwise, by the daemon */
#define N4_LOCKED_HERE 1 /* by the data path; the daemon locks with its own number */

/* n4_forwarding[template, peer]: the entry of forwarding that leads there. */
struct n4_forwarding_key {
	__u32 template;
	struct in6 remote; /* IPv4-mapped for IPv4 */
};

/* n4_count[fate]: what became of messages. */
enum n4_fate {
	N4_HEARTBEATS, /* answered */
	N4_MODIFICATIONS, /* answered */
	N4_REPEATED, /* answered again */
	N4_LEFT, /* to the daemon */
	N4_COUNTS,
};

/* Records of n4_events: the SMF wants an End Marker sent where packets went before. */
struct n4_event {
	__u64 seid;
	__u64 out; /* pdr's word of TEID and forwarding before */
	__u32 far;
	__u32 pad;
};

#endif
