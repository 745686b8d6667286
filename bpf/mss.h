/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The MSS of TCP connections that a session or a gateway carries (docs/reference/semantics.md section
 * 7): what both ends may send fits, so that nobody needs to be told. */
#ifndef CULVERT_MSS_H
#define CULVERT_MSS_H

#include "packet.h"

#define MSS_OPTIONS 40 /* octets of them at most */
#define MSS_HERE 0xffff
#define MSS_TCP_AND_IPV4 40
#define MSS_TCP_AND_IPV6 60

/* The TCP header of the IP packet at `offset`, if it begins a connection and is
 * no fragment; 0: it is none. */
GLOBAL int find_syn(struct xdp_md *ctx, __u32 offset)
{
	struct ipv4 *ip = at(ctx, offset, IPV4_LEN);
	__u32 tcp = offset + IPV6_LEN;
	__u8 *octets;

	if (!ip)
		return 0;
	if (ip->version_ihl >> 4 == 4) {
		if (ip->protocol != NH_TCP || be16(ld16(&ip->fragment)) & IPV4_FRAGMENT_MASK)
			return 0;
		tcp = offset + (ip->version_ihl & 0xf) * 4u;
	} else if (((struct ipv6 *)ip)->next_header != NH_TCP) {
		return 0;
	}
	octets = at(ctx, tcp, TCP_LEN);
	return octets && octets[TCP_FLAGS] & TCP_SYN ? tcp : 0;
}

/* Where the option behind the one at `from` is. MSS_HERE: it is the MSS; 0: it
 * is the last one, or malformed. A function of its own so that the verifier
 * knows nothing of what it returns, and need not follow each way. */
GLOBAL int next_option(struct xdp_md *ctx, __u32 from, __u32 to)
{
	__u8 *kind = at(ctx, from, 1), *option;

	if (!kind || *kind == TCP_OPTION_END)
		return 0;
	if (*kind == TCP_OPTION_NOP)
		return from + 1;
	option = at(ctx, from, 2);
	if (!option || option[1] < 2 || from + option[1] > to)
		return 0;
	if (option[0] == TCP_OPTION_MSS)
		return option[1] == 4 ? MSS_HERE : 0;
	return from + option[1];
}

/* Where the value of the first MSS option is; 0: there is none. */
INLINE __u32 find_mss(struct xdp_md *ctx, __u32 from, __u32 to)
{
	__u32 i, next;

	for (i = 0; i < MSS_OPTIONS && from < to; i++) {
		next = next_option(ctx, from, to);
		if (!next)
			return 0;
		if (next == MSS_HERE)
			return from + 2;
		from = next;
	}
	return 0;
}

/* The largest T-PDU that fits where it goes, and on the way back where it came
 * from; 0: not known. It has `length` octets at `tpdu`. */
INLINE int room_for_tpdu(struct packet *p, __u32 tpdu, __u32 length)
{
	int out = 0, in = 0;

	if (!p->out.to_kernel && p->out.hop.mtu)
		out = p->out.hop.mtu - (p->plan.length - length);
	if (p->port.mtu) {
		if (tpdu == p->in.l3 || p->found.sid)
			in = p->port.mtu - (tpdu - p->in.l3);
		else
			in = p->port.mtu - (p->in.version == 4 ? IPV4_LEN : IPV6_LEN) - UDP_LEN -
			     GTPU_LEN - 8;
		if (in < 1)
			in = 1;
	}
	return out && (!in || out < in) ? out : in;
}

/* The T-PDU of `length` octets at `tpdu`, whose next hop is known. */
GLOBAL int clamp_mss(struct xdp_md *ctx, struct packet *p, __u32 tpdu, __u32 length)
{
	__u32 tcp, header, value;
	__u8 *ip, *field;
	__u16 from, to;
	int most;

	if (!p)
		return 0;
	tcp = find_syn(ctx, tpdu);
	field = at(ctx, tcp + TCP_DATA_OFFSET, 1);
	if (!tcp || !field)
		return 0;
	header = (*field >> 4) * 4u;
	if (header < TCP_LEN || tcp + header > tpdu + length)
		return 0;
	value = find_mss(ctx, tcp + TCP_LEN, tcp + header);
	ip = at(ctx, tpdu, 1);
	if (!value || !ip)
		return 0;
	most = room_for_tpdu(p, tpdu, length) -
	       (*ip >> 4 == 4 ? MSS_TCP_AND_IPV4 : MSS_TCP_AND_IPV6);
	field = at(ctx, value, 2);
	if (!field || most < 1 || be16(ld16(field)) <= most)
		return 0;
	from = ld16(field);
	to = be16(most);
	st16(field, to);
	/* the words that a checksum is over begin at even octets */
	if ((value - tcp) & 1) {
		from = be16(from);
		to = be16(to);
	}
	field = at(ctx, tcp + TCP_CHECKSUM, 2);
	if (field)
		st16(field, checksum_update(ld16(field), from, to));
	return 0;
}

#endif
