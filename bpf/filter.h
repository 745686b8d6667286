/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SDF filters (TS 29.244 section 8.2.5): which of several rules a packet is
 * for. */
#ifndef CULVERT_FILTER_H
#define CULVERT_FILTER_H

#include "payload.h"

#define MAX_FILTERS 64 /* in a run, which ends with one that takes all */

/* Whether the first `length` bits agree; length 0..128. */
INLINE int has_prefix(struct words *address, const struct in6 *prefix, __u32 length)
{
	__u64 hi = be64(address->hi ^ ld64(prefix)), lo = be64(address->lo ^ ld64(&prefix->b[8]));

	if (length <= 64)
		return !length || !(hi >> ((64 - length) & 63));
	return !hi && !(lo >> ((128 - length) & 63));
}

INLINE int in_range(__u32 port, const __u16 *range)
{
	return port >= range[0] && port <= range[1];
}

/* As a number, the first octet its highest. */
INLINE __u64 mac_of(const __u8 *mac)
{
	return (__u64)be16(ld16(mac)) << 32 | be32(ld32(mac + 2));
}

INLINE int mac_between(__u64 mac, const __u8 *from, const __u8 *to)
{
	return mac >= mac_of(from) && mac <= mac_of(to);
}

INLINE int frame_matches(__u32 index, struct packet *p)
{
	struct frame_filter *f = bpf_map_lookup_elem(&frame_filter, &index);
	struct frame_looks *l = &p->found.frame_looks;

	if (!f || f->flags & (FRAME_C_TAG | FRAME_S_TAG) & ~l->has)
		return 0;
	return (!(f->flags & FRAME_SOURCE) || mac_between(l->source, f->source, f->source_to)) &&
	       (!(f->flags & FRAME_DESTINATION) ||
		mac_between(l->destination, f->destination, f->destination_to)) &&
	       (!(f->flags & FRAME_TYPE) || f->type == l->type) &&
	       (!(f->flags & FRAME_C_TAG) || f->c_tag == l->c_tag) &&
	       (!(f->flags & FRAME_S_TAG) || f->s_tag == l->s_tag) &&
	       (!(f->flags & FRAME_IP) || p->found.looks.version);
}

/* What a filter may not ask of a packet with l->version and l->has: prefixes are of one family
 * each. */
INLINE __u8 lacks_of(struct looks *l)
{
	__u8 lacks = (FILTER_PORTS | FILTER_SPI | FILTER_FLOW_LABEL) & ~l->has;

	if (l->version != 4)
		lacks |= FILTER_REMOTE4 | FILTER_LOCAL4;
	if (l->version != 6)
		lacks |= FILTER_REMOTE6 | FILTER_LOCAL6;
	return lacks;
}

/* Whether an IP packet that looks so is what the filter asks for. Most filters of a run are for
 * others: what tells that at once comes first, and without a branch for each. */
INLINE int looks_like(struct looks *l, struct filter *f)
{
	__u32 differs = (f->flags & l->lacks) | ((l->tos ^ f->tos) & f->tos_mask) |
			(f->flags & FILTER_PROTOCOL) * (__u32)(l->protocol ^ f->protocol);

	opaque(differs);
	if (differs || (f->qfis && !(f->qfis & l->qfi)))
		return 0;
	if (f->flags & (FILTER_REMOTE4 | FILTER_REMOTE6) &&
	    !has_prefix(&l->remote, &f->remote, f->remote_length))
		return 0;
	if (f->flags & (FILTER_LOCAL4 | FILTER_LOCAL6) &&
	    !has_prefix(&l->local, &f->local, f->local_length))
		return 0;
	if (f->flags & FILTER_FLOW_LABEL && (f->flow_label & 0xfffff) != l->flow_label)
		return 0;
	if (f->flags & FILTER_SPI)
		return ((__u32)f->remote_ports[0] << 16 | f->remote_ports[1]) == l->spi;
	if (f->flags & FILTER_PORTS)
		return in_range(l->ports >> 16, f->remote_ports) &&
		       in_range(l->ports & 0xffff, f->local_ports);
	return 1;
}

/* Layer 4, `left` octets of it at `offset`. */
INLINE void look_at_transport(struct xdp_md *ctx, struct looks *l, __u32 offset, __u32 left,
			      __u32 uplink)
{
	__u32 before = l->protocol == NH_AH ? 4 : 0, word;
	void *octets = at(ctx, offset + before, 4);

	if (!octets || left < before + 4)
		return;
	word = be32(ld32(octets));
	if (flow_has_ports(l->protocol)) { /* source, destination */
		l->ports = uplink ? word << 16 | word >> 16 : word;
		l->has |= FILTER_PORTS;
	} else if (l->protocol == NH_ESP || l->protocol == NH_AH) {
		l->spi = word;
		l->has |= FILTER_SPI;
	}
}

INLINE int look_at4(struct xdp_md *ctx, struct looks *l, __u32 l3, __u32 length, __u32 uplink)
{
	struct ipv4 *ip = at(ctx, l3, IPV4_LEN);
	__u64 src, dst;
	__u32 header;

	if (!ip)
		return -1;
	src = (__u64)ld32(&ip->src) << 32 | 0xffff0000;
	dst = (__u64)ld32(&ip->dst) << 32 | 0xffff0000;
	l->remote.lo = uplink ? dst : src;
	l->local.lo = uplink ? src : dst;
	l->protocol = ip->protocol;
	l->tos = ip->tos;
	header = (ip->version_ihl & 0xf) * 4;
	if (!(be16(ld16(&ip->fragment)) & IPV4_OFFSET_MASK))
		look_at_transport(ctx, l, l3 + header, length - header, uplink);
	return 0;
}

INLINE int look_at6(struct xdp_md *ctx, struct looks *l, __u32 l3, __u32 length, __u32 uplink)
{
	struct ipv6 *ip = at(ctx, l3, IPV6_LEN);

	if (!ip)
		return -1;
	copy16(&l->remote, uplink ? &ip->dst : &ip->src);
	copy16(&l->local, uplink ? &ip->src : &ip->dst);
	l->protocol = ip->next_header;
	l->tos = ipv6_class(ip);
	l->flow_label = ipv6_flow(ip);
	l->has = FILTER_FLOW_LABEL;
	look_at_transport(ctx, l, l3 + IPV6_LEN, length - IPV6_LEN, uplink);
	return 0;
}

/* Where an IP packet is. */
INLINE __u32 sought_at(__u32 l3, __u32 length)
{
	return l3 | length << 16;
}

INLINE __u32 sought_uplink(struct rule *head)
{
	return !(head->flags & PDR_DOWNLINK);
}

/* Whether an IPv4 packet is none that filters before the rule of a head ask for (enum apart). */
INLINE int is_apart4(__u32 apart, struct ipv4 *ip, __u32 downlink)
{
	__u32 bits, protocol = apart >> APART_PROTOCOL_SHIFT & 255;

	if (!(apart & APART))
		return 0;
	if (protocol && protocol != ip->protocol)
		return 1;
	bits = be32(ld32(downlink ? &ip->src : &ip->dst)) >> (32 - APART_LENGTH) ^ apart;
	bits &= (1 << APART_LENGTH) - 1;
	return bits >> ((APART_LENGTH - (apart >> APART_LENGTH_SHIFT)) & 31) != 0;
}

/* The same of an IPv6 packet. Without branches, of which the verifier would go both ways. */
INLINE __u64 is_apart6(__u32 apart, struct ipv6 *ip, struct pdr *head)
{
	__u64 next = ip->next_header;
	__u64 others = (next ^ NH_TCP) * (next ^ NH_UDP) | (apart >> 30 ^ 1) |
		       (ld64(&ip->src) ^ head->source6);

	return is_not_0(next ^ (apart & 0xff)) & ~is_not_0(others);
}

/* The rule that an enum straight of pdr[index] names. The processor expects one beside pdr[index],
 * and so reads both at the same time. */
INLINE __u32 straight_index(__u32 straight, __u32 index)
{
	straight &= STRAIGHT_INDEX;
	return straight == STRAIGHT_BESIDE ? node_settings.pdr_beside + index : straight;
}

/* The rule of the head pdr[index] that alone can take a packet of such a family and QFI; 0: filters tell.
 * `ip` may be IPv6, as far as its source's first half. An uplink's that takes IPv4 only may ask for the source.
 * `rule` is what the head said; it must say so still when it has told who needs no filter. */
INLINE __u32 straight_rule(struct pdr *head, __u32 index, struct rule *rule, struct ipv4 *ip,
			   __u32 qfi)
{
	__u64 word = *(volatile __u64 *)&head->teid;
	__u32 all = word, source4 = head->source4;

	if (!(rule->flags & PDR_STRAIGHT) || *(volatile __u64 *)&head->more != act_word(rule) ||
	    (!(all & STRAIGHT_ANY_QFI) && (all >> STRAIGHT_QFI_SHIFT & 63) != qfi))
		return 0;
	if (ip->version_ihl >> 4 != 4)
		return all >> 31 | is_apart6(word >> 32, (void *)ip, head)
			       ? straight_index(all, index)
			       : 0;
	if (!(all & STRAIGHT_IPV4) && !is_apart4(word >> 32, ip, rule->flags & PDR_DOWNLINK))
		return 0;
	if (!((all & STRAIGHT_IPV6) | (rule->flags & PDR_DOWNLINK)) && source4 &&
	    source4 != ld32(&ip->src))
		return 0;
	return straight_index(all, index);
}

/* The rule behind the head at `index`, which said `act` (act_word) when its packets' source was asked
 * for: the first of those whose filters the IP packet at `where` (sought_at), with a QFI or 0, passes.
 * 0: none. */
GLOBAL int find_rule(struct xdp_md *ctx, __u32 index, __u32 where, __u32 qfi, __u64 act)
{
	__u32 i, l3 = where & 0xffff, length = where >> 16, zero = 0, straight;
	struct pdr *head = bpf_map_lookup_elem(&pdr, &index);
	struct ipv4 *ip = at(ctx, l3, IPV4_LEN);
	struct packet *p;
	struct filter *f;
	struct rule rule;
	struct looks *l;

	if (!ip || !head)
		return 0;
	st64(&rule.more, act);
	straight = straight_rule(head, index, &rule, ip, qfi & 63);
	if (straight)
		return straight;
	p = bpf_map_lookup_elem(&journey_state, &zero);
	if (!p)
		return 0;
	l = &p->found.looks; /* on the stack there is no room for them */
	*l = (struct looks){ .version = ip->version_ihl >> 4, .qfi = 1ull << (qfi & 63) };
	if (l->version == 4 ? look_at4(ctx, l, l3, length, sought_uplink(&rule))
			    : look_at6(ctx, l, l3, length, sought_uplink(&rule)))
		return 0;
	l->lacks = lacks_of(l);
	index = rule.more;
	for (i = 0; i < MAX_FILTERS; i++, index++) {
		f = bpf_map_lookup_elem(&filter, &index);
		if (f && looks_like(l, f) && !(f->flow_label & FILTER_FRAME))
			return f->pdr;
	}
	return 0;
}

/* ---- frames ---- */

INLINE int is_vlan(__u16 type)
{
	return type == be16(TYPE_VLAN) || type == be16(TYPE_QINQ);
}

INLINE void look_at_tag(struct frame_looks *l, __u16 tpid, __u16 id)
{
	if (tpid == be16(TYPE_VLAN) && !(l->has & FRAME_C_TAG)) {
		l->c_tag = id;
		l->has |= FRAME_C_TAG;
	} else if (tpid == be16(TYPE_QINQ) && !(l->has & FRAME_S_TAG)) {
		l->s_tag = id;
		l->has |= FRAME_S_TAG;
	}
}

/* Fills in p->found.frame_looks for the frame at p->plan.keep, whose addresses are at
 * p->plan.macs. Then the packet in it is at p->plan.keep, or keep_version 0. */
GLOBAL int look_at_frame(struct xdp_md *ctx, struct packet *p)
{
	struct frame_looks *l;
	__u32 end, i;
	__u8 *eth, *tag;
	__u16 type;

	if (!p)
		return -1;
	l = &p->found.frame_looks;
	eth = at(ctx, p->plan.macs, 12);
	tag = at(ctx, p->plan.keep + 12, 2);
	if (!eth || !tag)
		return -1;
	l->destination = mac_of(eth);
	l->source = mac_of(eth + 6);
	l->has = 0;
	type = ld16(tag);
	end = p->plan.keep + p->plan.keep_length;
	p->plan.keep += ETH_LEN;
	for (i = 0; i < 2 && is_vlan(type) && p->plan.keep + VLAN_LEN <= end; i++) {
		tag = at(ctx, p->plan.keep, VLAN_LEN);
		if (!tag)
			break;
		look_at_tag(l, type, be16(ld16(tag)) & 0xfff);
		type = ld16(tag + 2);
		p->plan.keep += VLAN_LEN;
	}
	l->type = be16(type);
	if ((type != be16(TYPE_IPV4) && type != be16(TYPE_IPV6)) ||
	    take_payload(ctx, p, end - p->plan.keep, type == be16(TYPE_IPV4) ? 4 : 6,
			 REASON_INNER_MALFORMED))
		p->plan.keep_version = 0;
	return 0;
}

/* Fills in p->found.looks for the packet at p->plan.keep. */
GLOBAL int look_inside(struct xdp_md *ctx, struct packet *p, __u32 uplink)
{
	if (!p)
		return -1;
	p->found.looks = (struct looks){ .version = p->plan.keep_version,
					 .qfi = 1ull << (p->gtpu.qfi & 63) };
	if (p->plan.keep_version &&
	    (p->plan.keep_version == 4
		     ? look_at4(ctx, &p->found.looks, p->plan.keep, p->plan.keep_length, uplink)
		     : look_at6(ctx, &p->found.looks, p->plan.keep, p->plan.keep_length, uplink)))
		return -1;
	p->found.looks.lacks = lacks_of(&p->found.looks);
	return 0;
}

/* ... and p->found.frame_looks, for the frame at p->plan.keep and the packet in it. */
INLINE int look_at_both(struct xdp_md *ctx, struct packet *p, __u32 uplink)
{
	__u16 keep = p->plan.keep, length = p->plan.keep_length;
	int failed = look_at_frame(ctx, p) || look_inside(ctx, p, uplink);

	p->plan.keep = keep;
	p->plan.keep_length = length;
	p->plan.keep_version = 0;
	return failed;
}

GLOBAL int filter_matches(__u32 index, struct packet *p)
{
	struct filter *f = bpf_map_lookup_elem(&filter, &index);

	if (!f || !p || (f->flow_label & FILTER_FRAME && !frame_matches(index, p)))
		return 0;
	return looks_like(&p->found.looks, f);
}

/* The same as find_rule for a frame that was looked at. */
GLOBAL int find_frame_rule(struct packet *p, __u32 index)
{
	struct filter *f;
	__u32 i;

	for (i = 0; i < MAX_FILTERS; i++, index++) {
		if (!filter_matches(index, p))
			continue;
		f = bpf_map_lookup_elem(&filter, &index);
		return f ? f->pdr : 0;
	}
	return 0;
}

#endif
