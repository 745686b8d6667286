/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A G-PDU to another F-TEID, out over IPv4: new outer headers in place. */
#ifndef CULVERT_EXPRESS_ONWARD_H
#define CULVERT_EXPRESS_ONWARD_H

#include "endpoint.h"

/* The flow hash of a T-PDU of `length` octets; 0: it has another length. */
INLINE int express_pdu_hash(void *pdu, __u32 length, void *end, __u32 *hash)
{
	struct ipv4 *four = pdu;
	struct ipv6 *six = pdu;

	if (pdu + IPV4_LEN + EXPRESS_L4 > end || length < IPV4_LEN + EXPRESS_L4)
		return 0;
	if (four->version_ihl == 0x45) {
		if (be16(ld16(&four->length)) != length ||
		    ld16(&four->fragment) & be16(IPV4_FRAGMENT_MASK))
			return 0;
		*hash = express_hash4(four);
		return 1;
	}
	if (!is_ipv6(six) || pdu + IPV6_LEN + EXPRESS_L4 > end ||
	    IPV6_LEN + be16(ld16(&six->payload_length)) != length || length < IPV6_LEN + EXPRESS_L4)
		return 0;
	*hash = express_hash6(six);
	return 1;
}

/* Octets by which an IPv4 header is shorter than the outer one. */
INLINE __u32 express_shrinks(struct express *x)
{
	return express_header(x) - IPV4_LEN;
}

/* TTL or hop limit of the outer header. */
INLINE __u8 express_hops(struct express *x, void *ip)
{
	return *(__u8 *)(ip + 8 - x->is6);
}

/* The outer header becomes `g`, without a container of its own: the G-PDU's
 * options stay. The next hop is known. */
INLINE int express_onward4(struct xdp_md *ctx, struct express *x, struct express_gtpu_header *g,
			   void *ip)
{
	__u32 popped = express_shrinks(x);

	ip += popped;
	if (ip + IPV4_LEN + UDP_LEN + GTPU_LEN > packet_end(ctx))
		return leave_with(XDP_ABORTED); /* cannot be: a T-PDU follows */
	write_ipv4_udp(ip, g->tos, g->ttl, g->src, g->dst, x->length - popped,
		       gtpu_ports(flow_port(g->hash)));
	st32(ip + IPV4_LEN + UDP_LEN + 4, be32(g->teid));
	return express_cut(ctx, x, popped, TYPE_IPV4);
}

#endif
