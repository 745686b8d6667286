/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reading PFCP (TS 29.244 section 7): the messages that the data path answers, and no
 * others. What is unclear is left to the daemon, which sees the message as it came. */
#ifndef CULVERT_N4_READ_H
#define CULVERT_N4_READ_H

#include "hash.h"

#define PFCP_VERSION 0x20
#define PFCP_VERSION_MASK 0xe0
#define PFCP_S 1
#define PFCP_MP 2 /* the last octet has a message priority, which the answer repeats */
#define PFCP_PRIORITY 0xf0
#define PFCP_FO 4 /* another message follows */
#define PFCP_NODE_LEN 8
#define PFCP_SESSION_LEN 16
#define PFCP_IE_LEN 4
#define PFCP_LONGEST 1024 /* of a message that is read here */

enum pfcp_message {
	PFCP_HEARTBEAT_REQUEST = 1,
	PFCP_HEARTBEAT_RESPONSE = 2,
	PFCP_MODIFICATION_REQUEST = 52,
	PFCP_MODIFICATION_RESPONSE = 53,
	PFCP_DELETION_REQUEST = 54,
};

enum pfcp_ie {
	IE_UPDATE_PDR = 9,
	IE_UPDATE_FAR = 10,
	IE_UPDATE_FORWARDING = 11, /* Update Forwarding Parameters */
	IE_CAUSE = 19,
	IE_NETWORK_INSTANCE = 22,
	IE_DESTINATION_INTERFACE = 42,
	IE_APPLY_ACTION = 44,
	IE_SMREQ_FLAGS = 49, /* PFCPSMReq-Flags */
	IE_FSEID = 57,
	IE_OUTER_HEADER = 84, /* Outer Header Creation */
	IE_BAR_ID = 88,
	IE_RECOVERY = 96, /* Recovery Time Stamp */
	IE_FAR_ID = 108,
	IE_INTERFACE_TYPE = 160, /* 3GPP Interface Type */
};

#define CAUSE_ACCEPTED 1
#define SMREQ_SNDEM 2
#define OUTER_GTPU4 0x0100 /* GTP-U/UDP/IPv4 */
#define OUTER_GTPU6 0x0200

/* Which IEs an Update FAR has. */
enum n4_has {
	HAS_FAR_ID = 1,
	HAS_ACTION = 2,
	HAS_BAR = 4,
	HAS_FORWARDING = 8,
	HAS_DESTINATION = 16,
	HAS_INSTANCE = 32,
	HAS_TYPE = 64,
	HAS_OUTER = 128,
	HAS_FLAGS = 256,
};

/* An Update FAR. */
struct n4_update {
	__u32 far;
	__u32 has; /* enum n4_has */
	__u32 teid;
	__u32 instance; /* n4_hash of the Network Instance */
	struct in6 remote;
	__u8 action, bar, destination, type;
	__u8 flags; /* PFCPSMReq-Flags */
	__u8 pad[3];
};

/* A message. */
struct n4_message {
	__u64 seid;
	__u32 sequence;
	__u32 at, end; /* offsets of its IEs */
	__u32 recovery;
	__u8 type;
	__u8 updates;
	__u8 flags; /* of the answer's header */
	__u8 priority;
	struct n4_update update[N4_FARS];
	__u64 fseid, pdrs; /* hashes of the F-SEID, of all Update PDRs; 0: of nothing */
};

#define NOT_HERE 0
#define READ 1

/* ---- Network Instances ---- */

#define LONGEST_INSTANCE 100

INLINE __u32 n4_hash(__u32 hash, __u8 octet)
{
	return (hash ^ octet) * 0x01000193u; /* FNV-1a */
}

#define N4_HASH 0x811c9dc5u

/* Whether the value is labels (RFC 1035): their lengths add up to it. */
INLINE int is_labels(struct xdp_md *ctx, __u32 at_, __u32 length)
{
	__u32 i, next = 0;

	for (i = 0; i < LONGEST_INSTANCE && next < length; i++) {
		__u8 *octet = at(ctx, at_ + next, 1);

		if (!octet || !*octet || *octet > 63)
			return 0;
		next += 1 + *octet;
	}
	return next == length;
}

/* The hash of the text, whether it is written as labels or as text; 0: not here. */
GLOBAL __u32 hash_instance(struct xdp_md *ctx, __u32 from, __u32 length)
{
	__u32 hash = N4_HASH, i, dot = 0;
	int labels;

	if (!length || length > LONGEST_INSTANCE)
		return 0;
	labels = is_labels(ctx, from, length);
	for (i = 0; i < LONGEST_INSTANCE && i < length; i++) {
		__u8 *octet = at(ctx, from + i, 1);

		if (!octet)
			return 0;
		if (!labels || i != dot) {
			hash = n4_hash(hash, *octet);
			continue;
		}
		dot += 1 + *octet;
		if (i)
			hash = n4_hash(hash, '.');
	}
	return hash;
}

/* ---- IEs ---- */

/* Takes an IE that must not be there twice. */
INLINE int once(struct n4_update *u, __u32 has)
{
	__u32 had = u->has;

	u->has = had | has;
	return !(had & has);
}

INLINE int read_creation(struct xdp_md *ctx, struct n4_update *u, __u32 value, __u32 length)
{
	__u8 *v = at(ctx, value, 10);

	if (!v || length != 10 || be16(ld16(v)) != OUTER_GTPU4)
		return NOT_HERE;
	u->teid = be32(ld32(v + 2));
	st64(&u->remote, 0);
	st32(&u->remote.b[8], be32(0xffff));
	st32(&u->remote.b[12], ld32(v + 6));
	return u->teid && ld32(v + 6);
}

INLINE int read_forwarding_ie(struct xdp_md *ctx, struct n4_update *u, __u32 type, __u32 value,
			      __u32 length)
{
	__u8 *first = at(ctx, value, 1);

	if (!first)
		return NOT_HERE;
	switch (type) {
	case IE_DESTINATION_INTERFACE:
		u->destination = *first;
		return length == 1 && once(u, HAS_DESTINATION);
	case IE_INTERFACE_TYPE:
		u->type = *first;
		return length == 1 && once(u, HAS_TYPE);
	case IE_SMREQ_FLAGS:
		u->flags = *first;
		return length == 1 && once(u, HAS_FLAGS);
	case IE_NETWORK_INSTANCE:
		u->instance = hash_instance(ctx, value, length);
		return u->instance && once(u, HAS_INSTANCE);
	case IE_OUTER_HEADER:
		return read_creation(ctx, u, value, length) && once(u, HAS_OUTER);
	}
	return NOT_HERE;
}

#define MOST_IES 8

/* Update Forwarding Parameters: READ, or NOT_HERE. */
INLINE int read_forwarding(struct xdp_md *ctx, struct n4_update *u, __u32 from, __u32 end)
{
	__u32 i, type, length;

	if (end > MAX_OFFSET)
		return NOT_HERE;
	for (i = 0; i < MOST_IES && from < end; i++) {
		__u8 *ie = at(ctx, from, PFCP_IE_LEN);

		if (!ie)
			return NOT_HERE;
		type = be16(ld16(ie));
		length = be16(ld16(ie + 2));
		from += PFCP_IE_LEN;
		if (!length || from + length > end ||
		    !read_forwarding_ie(ctx, u, type, from, length))
			return NOT_HERE;
		from += length;
	}
	return from == end;
}

INLINE int read_far_ie(struct xdp_md *ctx, struct n4_update *u, __u32 type, __u32 value,
		       __u32 length)
{
	__u8 *v = at(ctx, value, 1);

	if (!v)
		return NOT_HERE;
	switch (type) {
	case IE_FAR_ID:
		v = at(ctx, value, 4);
		if (!v || length != 4)
			return NOT_HERE;
		u->far = be32(ld32(v));
		return once(u, HAS_FAR_ID);
	case IE_APPLY_ACTION:
		u->action = *v;
		if (length == 2) {
			v = at(ctx, value + 1, 1);
			if (!v || *v)
				return NOT_HERE;
		}
		return length <= 2 && once(u, HAS_ACTION);
	case IE_BAR_ID:
		u->bar = *v;
		return length == 1 && once(u, HAS_BAR);
	case IE_UPDATE_FORWARDING:
		return once(u, HAS_FORWARDING) && read_forwarding(ctx, u, value, value + length);
	}
	return NOT_HERE;
}

/* An Update FAR: READ, or NOT_HERE. */
GLOBAL int read_update(struct xdp_md *ctx, struct n4_update *u, __u32 from, __u32 end)
{
	__u32 i, type, length;

	if (!u || end > MAX_OFFSET)
		return NOT_HERE;
	for (i = 0; i < MOST_IES && from < end; i++) {
		__u8 *ie = at(ctx, from, PFCP_IE_LEN);

		if (!ie)
			return NOT_HERE;
		type = be16(ld16(ie));
		length = be16(ld16(ie + 2));
		from += PFCP_IE_LEN;
		if (!length || from + length > end || !read_far_ie(ctx, u, type, from, length))
			return NOT_HERE;
		from += length;
	}
	return from == end && u->has & HAS_FAR_ID;
}

/* ---- messages ---- */

/* The header at `from`, of `length` octets of UDP. */
INLINE int read_header(struct xdp_md *ctx, struct n4_message *m, __u32 from, __u32 length)
{
	__u8 *h = at(ctx, from, PFCP_NODE_LEN);
	__u32 session;

	if (!h || length > PFCP_LONGEST || (h[0] & (PFCP_VERSION_MASK | PFCP_FO)) != PFCP_VERSION ||
	    be16(ld16(h + 2)) + 4u != length)
		return NOT_HERE;
	m->type = h[1];
	m->flags = h[0] & (PFCP_VERSION_MASK | PFCP_MP | PFCP_S);
	session = h[0] & PFCP_S;
	if (session != (m->type == PFCP_MODIFICATION_REQUEST))
		return NOT_HERE;
	m->end = from + length;
	if (!session) {
		m->sequence = be32(ld32(h + 4)) >> 8;
		m->priority = m->flags & PFCP_MP ? h[7] & PFCP_PRIORITY : 0;
		m->at = from + PFCP_NODE_LEN;
		return READ;
	}
	h = at(ctx, from, PFCP_SESSION_LEN);
	if (!h)
		return NOT_HERE;
	m->seid = be64(ld64(h + 4));
	m->sequence = be32(ld32(h + 12)) >> 8;
	m->priority = m->flags & PFCP_MP ? h[15] & PFCP_PRIORITY : 0;
	m->at = from + PFCP_SESSION_LEN;
	return READ;
}

/* A Heartbeat Request's one IE. */
INLINE int read_heartbeat(struct xdp_md *ctx, struct n4_message *m)
{
	__u8 *ie = at(ctx, m->at, PFCP_IE_LEN + 4);

	if (!ie || m->at + PFCP_IE_LEN + 4 != m->end || be16(ld16(ie)) != IE_RECOVERY ||
	    be16(ld16(ie + 2)) != 4)
		return NOT_HERE;
	m->recovery = be32(ld32(ie + 4));
	return READ;
}

/* What a request repeats, while it is read. */
struct n4_repeated {
	__u64 key[2];
	struct n4_sip fseid, pdrs;
	__u32 count; /* of Update PDRs */
	__u32 pad;
};

/* An IE of `length` octets with its header: READ, or NOT_HERE. */
GLOBAL int read_repeated(struct xdp_md *ctx, struct n4_repeated *r, __u32 from, __u32 length)
{
	__u8 *type = at(ctx, from, 2);

	if (!r || !type)
		return NOT_HERE;
	switch (be16(ld16(type))) {
	case IE_FSEID:
		if (r->fseid.octets)
			return NOT_HERE;
		sip_begin(&r->fseid, r->key);
		return sip_add(ctx, &r->fseid, from, length);
	case IE_UPDATE_PDR:
		if (!r->count)
			sip_begin(&r->pdrs, r->key);
		r->count++;
		return r->count <= N4_PDRS && sip_add(ctx, &r->pdrs, from, length);
	}
	return NOT_HERE;
}

/* Update FARs, and what is only compared. A function of its own: the verifier goes through its loop
 * once. */
GLOBAL int read_modification(struct xdp_md *ctx, struct n4_message *m, __u64 key, __u64 more_key)
{
	struct n4_repeated r = { .key = { key, more_key } };
	__u32 i, from, end, length;

	if (!m)
		return NOT_HERE;
	from = m->at;
	end = m->end;
	for (i = 0; i < 1 + N4_PDRS + N4_FARS && from < end; i++) {
		__u8 *ie = at(ctx, from, PFCP_IE_LEN);

		if (!ie)
			return NOT_HERE;
		length = PFCP_IE_LEN + be16(ld16(ie + 2));
		if (from + length > end)
			return NOT_HERE;
		if (be16(ld16(ie)) != IE_UPDATE_FAR) {
			if (!read_repeated(ctx, &r, from, length))
				return NOT_HERE;
		} else if (m->updates >= N4_FARS ||
			   !read_update(ctx, &m->update[m->updates & (N4_FARS - 1)],
					from + PFCP_IE_LEN, from + length)) {
			return NOT_HERE;
		} else {
			m->updates++;
		}
		from += length;
	}
	m->fseid = sip_end(&r.fseid);
	m->pdrs = sip_end(&r.pdrs);
	return from == end && m->updates;
}

/* A message of `length` octets at `from`: READ, or NOT_HERE. *m is zero before; `key` is of
 * the hashes. */
INLINE int read_message(struct xdp_md *ctx, struct n4_message *m, __u32 from, __u32 length,
			const __u64 *key)
{
	if (!read_header(ctx, m, from, length))
		return NOT_HERE;
	if (m->type == PFCP_HEARTBEAT_REQUEST)
		return read_heartbeat(ctx, m);
	return m->type == PFCP_MODIFICATION_REQUEST ? read_modification(ctx, m, key[0], key[1])
						    : NOT_HERE;
}

#endif
