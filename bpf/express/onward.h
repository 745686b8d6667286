/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A G-PDU to another F-TEID, over IPv4 both: new outer headers in place. */
#ifndef CULVERT_EXPRESS_ONWARD_H
#define CULVERT_EXPRESS_ONWARD_H

#include "push.h"

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

/* The outer header becomes `g`, without a container of its own: the G-PDU's
 * options stay. The next hop is known. */
INLINE int express_onward4(struct xdp_md *ctx, struct express *x, struct express_gtpu_header *g,
			   void *ip)
{
	express_write_ipv4(ip, g, x->length);
	st32(ip + IPV4_LEN + UDP_LEN + 4, be32(g->teid));
	return express_stay(ctx, x, TYPE_IPV4);
}

#endif
