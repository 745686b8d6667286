/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* PFCP in the data path: heartbeats, and requests that update FARs, of SMFs that the
 * daemon knows (docs/adr/0023-signalling-in-the-data-path.md). Everything else goes to the
 * daemon, unchanged. */
#ifndef CULVERT_N4_N4_H
#define CULVERT_N4_N4_H

#include "../payload.h"
#include "change.h"

/* How long heartbeats are answered without a sign of life of the daemon. */
#define N4_ALONE (60ull * NS)

/* Where the parts of a datagram are. */
struct n4_datagram {
	struct in6 from, to; /* IPv4-mapped for IPv4 */
	__u32 l4, length;    /* UDP's; the length with its header */
	__u8 version;
	__u8 whole; /* not the first fragment of one */
	__u8 known; /* from an SMF that this node has an association with */
};

/* ---- in ---- */

/* The sum of 8 or more octets of a frame in one piece, in words: a call of the kernel for each costs
 * more than a word. A function of its own: the verifier goes through its loop once for all who ask. */
GLOBAL __u64 sum_here(struct xdp_md *ctx, __u32 from, __u32 length)
{
	__u64 sum = 0, last;
	__u8 *b;
	__u32 i;

	for (i = 0; i < (PFCP_LONGEST + UDP_LEN) / 8 && length >= 8; i++) {
		b = at(ctx, from, 8);
		if (!b)
			return 0;
		sum += (__u64)ld32(b) + ld32(b + 4);
		from += 8;
		length -= 8;
	}
	b = at(ctx, from + length - 8, 8);
	if (!b || !length)
		return sum;
	last = ld64(b) >> (64 - 8 * length); /* the octets before them are in the word before */
	return sum + (__u32)last + (last >> 32);
}

INLINE int udp_is_sound(struct xdp_md *ctx, struct n4_datagram *d, __u32 port_flags)
{
	struct udp *udp = at(ctx, d->l4, UDP_LEN);
	__u64 sum;

	if (!udp || be16(ld16(&udp->length)) != d->length || d->length < UDP_LEN ||
	    d->length > PFCP_LONGEST + UDP_LEN)
		return 0;
	if (port_flags & PORT_PARTIAL_CHECKSUM || (d->version == 4 && !ld16(&udp->checksum)))
		return 1;
	sum = address_sum(&d->from) + address_sum(&d->to) + pseudo_tail(d->length, NH_UDP) +
	      sum_here(ctx, d->l4, d->length);
	if (d->version == 4)
		sum -= 2ull * be32(0xffff); /* of mapped addresses */
	return sum_fold(sum) == 0xffff;
}

/* The frame has `room` octets behind its Ethernet header, of which the last ones may be padding. */
INLINE int find_datagram4(struct n4_datagram *d, struct ipv4 *ip, __u32 room)
{
	__u32 length = be16(ld16(&ip->length));

	if (ip->version_ihl != 0x45 || ip->protocol != NH_UDP ||
	    ld16(&ip->fragment) & be16(IPV4_OFFSET_MASK) || length > room ||
	    !ipv4_holds(ipv4_sum(ip)))
		return 0;
	d->whole = !(ld16(&ip->fragment) & be16(IPV4_FRAGMENT_MASK));
	st64(&d->from, 0);
	st64(&d->to, 0);
	st32(&d->from.b[8], be32(0xffff));
	st32(&d->to.b[8], be32(0xffff));
	st32(&d->from.b[12], ld32(&ip->src));
	st32(&d->to.b[12], ld32(&ip->dst));
	d->version = 4;
	d->l4 = ETH_LEN + IPV4_LEN;
	d->length = length - IPV4_LEN;
	return 1;
}

INLINE int find_datagram6(struct xdp_md *ctx, struct n4_datagram *d, struct ipv6 *ip, __u32 room)
{
	__u8 *fragment = at(ctx, ETH_LEN + IPV6_LEN, FRAGMENT_LEN + UDP_LEN);
	int first = fragment && ip->next_header == NH_FRAGMENT && *fragment == NH_UDP &&
		    !(ld16(fragment + 2) & be16(IPV6_OFFSET_MASK));
	__u32 headers = IPV6_LEN + (first ? FRAGMENT_LEN : 0);
	__u32 length = IPV6_LEN + be16(ld16(&ip->payload_length));

	if (!is_ipv6(ip) || !(first || ip->next_header == NH_UDP) || length > room)
		return 0;
	copy16(&d->from, &ip->src);
	copy16(&d->to, &ip->dst);
	d->whole = !first;
	d->version = 6;
	d->l4 = ETH_LEN + headers;
	d->length = length - headers;
	return 1;
}

/* An untagged frame with a datagram for one of this node's N4 addresses. */
INLINE int find_datagram(struct xdp_md *ctx, struct n4_datagram *d, struct n4_state *state)
{
	__u32 i, room = (long)ctx->data_end - (long)ctx->data - ETH_LEN;
	__u8 *eth = at(ctx, 0, ETH_LEN + IPV4_LEN + UDP_LEN);
	void *six = at(ctx, 0, ETH_LEN + IPV6_LEN + UDP_LEN);
	int found = 0;

	if (!eth)
		return 0;
	if (ld16(eth + 12) == be16(TYPE_IPV4))
		found = find_datagram4(d, (void *)eth + ETH_LEN, room);
	else if (six && ld16(eth + 12) == be16(TYPE_IPV6))
		found = find_datagram6(ctx, d, six + ETH_LEN, room);
	for (i = 0; found && i < N4_ADDRESSES; i++)
		if (equal16(&state->address[i], &d->to))
			return 1;
	return 0;
}

/* ---- out ---- */

/* Four octets each. */
INLINE void swap(void *a, void *b)
{
	__u32 x = ld32(a);

	st32(a, ld32(b));
	st32(b, x);
}

/* The headers of the answer, whose UDP payload of `length` octets is written. */
INLINE int address_answer(struct xdp_md *ctx, struct n4_datagram *d, __u32 length)
{
	__u8 *eth = at(ctx, 0, ETH_LEN), mac[6];
	struct ipv4 *ip = at(ctx, ETH_LEN, IPV4_LEN);
	struct ipv6 *six = d->version == 6 ? at(ctx, ETH_LEN, IPV6_LEN) : 0;
	struct udp *udp = at(ctx, d->l4, UDP_LEN);
	__u64 sum;
	__u16 port;

	if (!eth || !ip || !udp || (d->version == 6 && !six))
		return XDP_ABORTED; /* cannot be: they were read */
	__builtin_memcpy(mac, eth, 6);
	__builtin_memcpy(eth, eth + 6, 6);
	__builtin_memcpy(eth + 6, mac, 6);
	if (six) {
		copy16(&six->src, &d->to);
		copy16(&six->dst, &d->from);
		st16(&six->payload_length, be16(UDP_LEN + length));
		six->hop_limit = 64;
	} else {
		swap(&ip->src, &ip->dst);
		st16(&ip->length, be16(IPV4_LEN + UDP_LEN + length));
		st32(&ip->id, be16(IPV4_DF) << 16);
		ip->tos = 0;
		ip->ttl = 64;
		st16(&ip->checksum, 0);
		st16(&ip->checksum, ~sum_fold(ipv4_sum(ip)));
	}
	port = ld16(&udp->src);
	st16(&udp->src, ld16(&udp->dst));
	st16(&udp->dst, port);
	st16(&udp->length, be16(UDP_LEN + length));
	st16(&udp->checksum, 0);
	sum = address_sum(&d->from) + address_sum(&d->to) + pseudo_tail(UDP_LEN + length, NH_UDP) +
	      sum_here(ctx, d->l4, UDP_LEN + length);
	if (d->version == 4)
		sum -= 2ull * be32(0xffff);
	udp = at(ctx, d->l4, UDP_LEN);
	if (!udp)
		return XDP_ABORTED; /* cannot be: it was there */
	port = ~sum_fold(sum);
	st16(&udp->checksum, port ? port : 0xffff);
	count(&outcomes, REASON_REPLIED, frame_length(ctx));
	return bpf_redirect_map(&device, ctx->ingress_ifindex, XDP_TX);
}

/* Makes the frame as long as one with a UDP payload of `length` octets. */
INLINE int resize(struct xdp_md *ctx, struct n4_datagram *d, __u32 length)
{
	int want = d->l4 + UDP_LEN + length, have = (long)ctx->data_end - (long)ctx->data;

	return want == have ? 0 : bpf_xdp_adjust_tail(ctx, want - have);
}

#define HEARTBEAT_LEN (PFCP_NODE_LEN + PFCP_IE_LEN + 4)
#define MODIFICATION_LEN (PFCP_SESSION_LEN + PFCP_IE_LEN + 1)

INLINE int answer_heartbeat(struct xdp_md *ctx, struct n4_datagram *d, struct n4_message *m,
			    __u32 recovery)
{
	__u8 *h;

	if (resize(ctx, d, HEARTBEAT_LEN))
		return XDP_ABORTED; /* cannot be: it is as long as it was */
	h = at(ctx, d->l4 + UDP_LEN, HEARTBEAT_LEN);
	if (!h)
		return XDP_ABORTED;
	h[0] = m->flags;
	h[1] = PFCP_HEARTBEAT_RESPONSE;
	st16(h + 2, be16(HEARTBEAT_LEN - 4));
	st32(h + 4, be32(m->sequence << 8 | m->priority));
	st16(h + 8, be16(IE_RECOVERY));
	st16(h + 10, be16(4));
	st32(h + 12, be32(recovery));
	return address_answer(ctx, d, HEARTBEAT_LEN);
}

INLINE int answer_modification(struct xdp_md *ctx, struct n4_datagram *d, struct n4_message *m,
			       __u64 cp_seid)
{
	__u8 *h;

	if (resize(ctx, d, MODIFICATION_LEN))
		return XDP_ABORTED; /* cannot be: it only shrinks */
	h = at(ctx, d->l4 + UDP_LEN, MODIFICATION_LEN);
	if (!h)
		return XDP_ABORTED;
	h[0] = m->flags;
	h[1] = PFCP_MODIFICATION_RESPONSE;
	st16(h + 2, be16(MODIFICATION_LEN - 4));
	st64(h + 4, be64(cp_seid));
	st32(h + 12, be32(m->sequence << 8 | m->priority));
	st16(h + 16, be16(IE_CAUSE));
	st16(h + 18, be16(1));
	h[20] = CAUSE_ACCEPTED;
	return address_answer(ctx, d, MODIFICATION_LEN);
}

/* ---- both ---- */

INLINE void count_n4(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&n4_count, &what);

	if (n)
		++*n;
}

#define LEFT -5 /* to the daemon: beside the other numbers that are not verdicts */

/* An SMF that started again, or a daemon that is long gone, has other heartbeats. */
INLINE int heartbeat(struct xdp_md *ctx, struct n4_datagram *d, struct n4_message *m,
		     struct n4_peer *peer, struct n4_state *state)
{
	__u64 now = bpf_ktime_get_ns();

	if (!state->recovery || m->recovery != peer->recovery || now - state->alive > N4_ALONE)
		return LEFT;
	peer->heard = now;
	count_n4(N4_HEARTBEATS);
	return answer_heartbeat(ctx, d, m, state->recovery);
}

/* What a message is worked on in, too large for the stack: the journey is over. */
struct n4_work {
	struct n4_message message;
	struct n4_plan plan;
};

INLINE int modification(struct xdp_md *ctx, struct n4_datagram *d, struct n4_work *w,
			__u32 association)
{
	struct n4_session *s = session_of(w->message.seid);
	__u64 cp_seid;
	int done;

	if (!s || s->open != N4_OPEN || s->seid != w->message.seid || !lock_session(s))
		return LEFT;
	done = change_session(s, &w->message, &w->plan, association);
	cp_seid = s->cp_seid;
	unlock_session(s);
	if (done == NOT_HERE)
		return LEFT;
	count_n4(done == ANSWERED ? N4_REPEATED : N4_MODIFICATIONS);
	return answer_modification(ctx, d, &w->message, cp_seid);
}

/* A verdict, or LEFT. */
INLINE int answer(struct xdp_md *ctx, struct n4_datagram *d, struct n4_peer *peer,
		  struct n4_state *state, __u32 port_flags)
{
	__u32 zero = 0;
	struct n4_work *w = bpf_map_lookup_elem(&journey_state, &zero);

	_Static_assert(sizeof(*w) <= JOURNEY_STATE, "struct n4_work");
	if (!w || !d->whole || !udp_is_sound(ctx, d, port_flags))
		return LEFT;
	__builtin_memset(w, 0, sizeof(*w));
	if (!read_message(ctx, &w->message, d->l4 + UDP_LEN, d->length - UDP_LEN, state->key))
		return LEFT;
	if (w->message.type == PFCP_HEARTBEAT_REQUEST)
		return heartbeat(ctx, d, &w->message, peer, state);
	return state->open ? modification(ctx, d, w, peer->association) : LEFT;
}

/* The session waits for the daemon, which answers what comes first first. */
INLINE void note_left(struct xdp_md *ctx, struct n4_datagram *d)
{
	__u8 *h = at(ctx, d->l4 + UDP_LEN, PFCP_SESSION_LEN);
	struct n4_session *s;
	__u64 seid, was;
	__u32 sequence;

	if (!d->known || !h || !(h[0] & PFCP_S) ||
	    (h[1] != PFCP_MODIFICATION_REQUEST && h[1] != PFCP_DELETION_REQUEST))
		return;
	seid = be64(ld64(h + 4));
	s = session_of(seid);
	if (!s || s->seid != seid || !seid)
		return;
	sequence = be32(ld32(h + 12)) >> 8;
	was = *(volatile __u64 *)&s->left;
	if (!(was & N4_LEFT_TO) || ((sequence - (__u32)was) & 0xffffff) <= 0x7fffff)
		__sync_lock_test_and_set(&s->left, N4_LEFT_TO | sequence);
}

/* A verdict, or LEFT: nothing was changed. */
INLINE int n4(struct xdp_md *ctx, struct port *in, struct n4_datagram *d)
{
	__u32 zero = 0;
	struct n4_state *state = bpf_map_lookup_elem(&n4_state, &zero);
	struct n4_peer *peer;

	if (!state || !find_datagram(ctx, d, state))
		return LEFT;
	peer = bpf_map_lookup_elem(&n4_peer, &d->from);
	d->known = peer && peer->association;
	return d->known && !(in->flags & PORT_SILENT) ? answer(ctx, d, peer, state, in->flags)
						      : LEFT;
}

/* Whether the journey would let to this host what an SMF sends to it by this port. */
INLINE int is_for_n4(struct xdp_md *ctx, struct port *in)
{
	__u8 *eth = at(ctx, 0, ETH_LEN);

	return eth && (in->flags & (PORT_N4 | PORT_STEERED)) == PORT_N4 &&
	       is_for_port(in->mac, eth) && !node_settings.trace;
}

#endif
