/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Frames: layers that fit the tables and each other, then a few changes to
 * them. */
#ifndef CULVERT_NATIVE_FRAME_H
#define CULVERT_NATIVE_FRAME_H

#include "world.h"

struct frame {
	__u8 b[MAX_FRAME];
	__u32 length;
	__u32 ifindex;
};

/* `n` more octets, zero; NULL where they do not fit. */
static __u8 *more(struct frame *f, __u32 n)
{
	__u8 *at = f->b + f->length;

	if (f->length + n > MAX_FRAME)
		return 0;
	memset(at, 0, n);
	f->length += n;
	return at;
}

/* ---- transport ---- */

static const __u16 sizes[] = { 0, 1, 7, 8, 9, 40, 512, 1200, 1400, 1452, 2000 };

static void add_payload(struct input *in, struct frame *f)
{
	__u32 n = sizes[pick(in, sizeof(sizes) / sizeof(*sizes))];
	__u8 *p = more(f, n);

	if (p && n)
		memset(p, take8(in), n);
}

static __u32 sum_of(const __u8 *p, __u32 n)
{
	__u32 sum = 0, i;

	for (i = 0; i < n; i++)
		sum += i & 1 ? p[i] : p[i] << 8;
	return sum;
}

static __u16 fold(__u32 sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Options of a SYN; the header's length may be another. */
static void begin_connection(struct input *in, struct frame *f, __u8 *tcp)
{
	static const __u8 kinds[] = { 0, 1, 1, 2, 2, 2, 3, 8 };
	__u32 i, words = pick(in, 11);
	__u8 *option;

	for (i = 0; i < words; i++) {
		option = more(f, 4);
		if (!option)
			return;
		st32(option, take32(in));
		if (!rarely(in, 8)) {
			option[0] = kinds[pick(in, sizeof(kinds))];
			option[1] = 4;
		}
	}
	tcp[TCP_DATA_OFFSET] = (rarely(in, 8) ? take8(in) : 5 + words) << 4;
	tcp[TCP_FLAGS] = TCP_SYN | take8(in);
}

/* TCP, UDP, ICMP or ICMPv6 behind the header at `ip`: checksum right, partial,
 * zero or wrong. */
static void add_transport(struct input *in, struct frame *f, __u8 protocol, const __u8 *src,
			  __u32 addresses)
{
	__u32 at = f->length, length, field;
	__u8 *p = more(f, protocol == NH_TCP ? 20 : 8);
	__u32 pseudo;

	if (!p)
		return;
	st16(p, take16(in));
	st16(p + 2, take16(in));
	if (protocol == NH_TCP && rarely(in, 2))
		begin_connection(in, f, p);
	add_payload(in, f);
	length = f->length - at;
	field = protocol == NH_TCP ? 16 : protocol == NH_UDP ? 6 : 2;
	if (protocol == NH_UDP)
		st16(p + 4, be16(length));
	pseudo = sum_of(src, addresses) + length + protocol;
	st16(p + field, 0);
	switch (pick(in, 6)) {
	case 0:
		break;
	case 1:
		st16(p + field, take16(in));
		break;
	case 2:
		st16(p + field, be16(fold(pseudo)));
		break;
	default:
		st16(p + field, be16(~fold(pseudo + sum_of(p, length))));
	}
}

/* ---- inner packets ---- */

static const __u8 hop_limits[] = { 64, 64, 64, 255, 2, 1, 0 };
static const __u8 transports[] = {
	NH_TCP, NH_UDP, NH_UDP, NH_ICMP, NH_ICMPV6, NH_SCTP, NH_FRAGMENT
};

static void ipv4_header(struct input *in, __u8 *ip, __u8 protocol)
{
	ip[0] = 0x45;
	ip[1] = take8(in);
	st16(ip + 6, be16(rarely(in, 8) ? take16(in) : take8(in) & 1 ? IPV4_DF : 0));
	ip[8] = hop_limits[pick(in, sizeof(hop_limits))];
	ip[9] = protocol;
	take_octets(in, ip + 12, 4);
	ip[16] = 10;
	ip[17] = 96 + pick(in, 32);
	ip[18] = take8(in);
	ip[19] = take8(in);
	if (rarely(in, 8))
		memcpy(ip + 16, gtpu4_address, 4);
}

static void sum_ipv4(struct frame *f, __u32 at)
{
	__u8 *ip = f->b + at;
	__u32 header = 4 * (ip[0] & 15);

	if (header < IPV4_LEN || at + header > f->length)
		return;
	st16(ip + 10, 0);
	st16(ip + 10, be16(~fold(sum_of(ip, header))));
}

static void finish_ipv4(struct frame *f, __u32 at)
{
	st16(f->b + at + 2, be16(f->length - at));
	sum_ipv4(f, at);
}

static void ipv6_header(struct input *in, __u8 *ip, __u8 next)
{
	st32(ip, be32(6u << 28 | (take32(in) & 0xfffffff)));
	ip[6] = next;
	ip[7] = hop_limits[pick(in, sizeof(hop_limits))];
	memcpy(ip + 8, gtpu6_address, 16);
	ip[8 + 15] = take8(in);
	ip[24] = 0x20;
	ip[25] = 0x01;
	ip[26] = 0x0d;
	ip[27] = 0xb8;
	ip[28] = (const __u8[]){ 0xee, 0xdd, 0xff, 0x01 }[pick(in, 4)];
	ip[29] = take8(in) & 7;
	ip[31] = take8(in) & 7;
	ip[39] = take8(in) & 3;
}

static void finish_ipv6(struct frame *f, __u32 at)
{
	st16(f->b + at + 4, be16(f->length - at - 40));
}

/* `rule` or NULL: mostly the packet has the source that it asks for. */
static void add_inner(struct input *in, struct frame *f, int version, struct pdr *rule)
{
	__u8 protocol = transports[pick(in, sizeof(transports))];
	__u32 at = f->length;
	__u8 *ip = more(f, version == 4 ? 20 : 40);

	if (!ip)
		return;
	if (version == 4) {
		ipv4_header(in, ip, protocol);
		if (rule && !rarely(in, 4))
			st32(ip + 12, rule->source4);
		if (rarely(in, 8) && more(f, 4))
			ip[0] = 0x46;
		add_transport(in, f, protocol, ip + 12, 8);
		finish_ipv4(f, at);
	} else {
		ipv6_header(in, ip, protocol);
		if (rule && !rarely(in, 4))
			st64(ip + 8, rule->source6);
		add_transport(in, f, protocol, ip + 8, 32);
		finish_ipv6(f, at);
	}
}

static void add_ethernet(struct input *in, struct frame *f)
{
	static const __u16 types[] = { TYPE_VLAN, TYPE_QINQ };
	__u32 version = rarely(in, 4) ? 6 : 4, tags = rarely(in, 4) ? 1 + pick(in, 2) : 0,
	      type = f->length + 12;
	__u8 *eth = more(f, ETH_LEN);

	if (!eth)
		return;
	station_mac(eth, take8(in));
	station_mac(eth + 6, take8(in));
	if (rarely(in, 4))
		take_octets(in, eth, 12);
	for (; tags && more(f, VLAN_LEN); tags--, type += VLAN_LEN) {
		st16(f->b + type, be16(types[pick(in, 2)]));
		st16(f->b + type + 2, be16(pick(in, 2) ? 100 : take16(in)));
	}
	st16(f->b + type, be16(version == 4 ? TYPE_IPV4 : TYPE_IPV6));
	add_inner(in, f, version, 0);
}

/* ---- GTP-U ---- */

static const __u8 messages[] = { GTPU_G_PDU,
				 GTPU_G_PDU,
				 GTPU_G_PDU,
				 GTPU_G_PDU,
				 GTPU_ECHO_REQUEST,
				 GTPU_ECHO_RESPONSE,
				 GTPU_ERROR_INDICATION,
				 GTPU_END_MARKER };
static const __u8 extensions[] = {
	GTPU_EXT_CONTAINER, GTPU_EXT_CONTAINER, 0x40, 0x81, 0xc0, 0x20, 0xff
};

/* Chain of extension headers; `link` names the first. */
static void add_extensions(struct input *in, struct frame *f, __u8 *link)
{
	__u32 n = pick(in, 4), i;

	if (rarely(in, 16))
		n = 8 + pick(in, 2);
	for (i = 0; i < n; i++) {
		__u32 words = 1 + pick(in, 2);
		__u8 *e = more(f, 4 * words);

		if (!e)
			return;
		*link = extensions[pick(in, sizeof(extensions))];
		e[0] = words;
		e[1] = take8(in) & 0x1f;
		e[2] = take8(in);
		link = &e[4 * words - 1];
	}
}

/* Of a tunnel, of a rule, which is then *of, or any. */
static __u32 any_teid(struct input *in, struct pdr **of)
{
	__u32 slot = pick(in, TUNNELS + PDRS);
	struct pdr *rule;

	*of = 0;
	if (rarely(in, 8))
		return take32(in);
	if (slot < TUNNELS)
		return VALUE(tunnel, struct tunnel, slot)->key;
	slot -= TUNNELS;
	*of = rule = VALUE(pdr, struct pdr, slot);
	if (slot >= PDR_SLOTS)
		return 0x5e000000 + slot;
	return (__u32)rule->generation
		       << (rule->flags & PDR_BY_TEID ? 24 : node_settings.teid_fold) |
	       slot;
}

static void add_gtpu(struct input *in, struct frame *f)
{
	struct pdr *rule;
	__u32 udp_at = f->length, at, teid = any_teid(in, &rule);
	__u8 *udp = more(f, UDP_LEN), *g = more(f, GTPU_LEN), *options;

	if (!udp || !g)
		return;
	at = f->length;
	st16(udp, take16(in));
	st16(udp + 2, be16(GTPU_PORT));
	g[0] = GTPU_VERSION1 | (pick(in, 2) ? GTPU_FLAG_E : pick(in, 8));
	g[1] = messages[pick(in, sizeof(messages))];
	st32(g + 4, be32(teid));
	options = g[0] & GTPU_OPTIONS ? more(f, GTPU_OPTIONS_LEN) : 0;
	if (options) {
		st16(options, take16(in));
		if (g[0] & GTPU_FLAG_E)
			add_extensions(in, f, options + 3);
	}
	if (g[1] == GTPU_G_PDU && (FRAME_SLOT(teid & 0xffffff) || rarely(in, 8)))
		add_ethernet(in, f);
	else if (g[1] == GTPU_G_PDU)
		add_inner(in, f, pick(in, 2) ? 4 : 6, rule);
	st16(g + 2, be16(f->length - at));
	st16(udp + 4, be16(f->length - udp_at));
}

/* ---- outer packets ---- */

/* A segment: a SID of ours with an argument, or any. */
static void any_segment(struct input *in, __u8 *to)
{
	__u32 i = pick(in, aims.sids), octet;
	struct pdr *rule;

	memcpy(to, &aims.sid[i], 16);
	for (octet = aims.sid_length[i] / 8; octet < 16; octet++)
		to[octet] = take8(in) & 1 ? 0 : take8(in);
	octet = aims.sid_length[i] / 8;
	if (octet < 12 && rarely(in, 3)) /* Args.Mob.Session of a rule */
		st32(to + octet + 1, be32(any_teid(in, &rule)));
	if (rarely(in, 4))
		take_octets(in, to, 16);
}

static void add_srh(struct input *in, struct frame *f, __u8 *link)
{
	__u32 n = 1 + pick(in, 5), i, tlvs = rarely(in, 4);
	__u8 *s = more(f, SRH_LEN + SEGMENT_LEN * n + 8 * tlvs);

	if (!s)
		return;
	*link = NH_ROUTING;
	s[1] = 2 * n + tlvs;
	s[2] = SRH_TYPE;
	s[3] = pick(in, n + 1);
	s[4] = n - 1;
	s[7] = take8(in) & 1 ? 1 << pick(in, 5) : 0;
	for (i = 0; i < n; i++)
		any_segment(in, s + SRH_LEN + SEGMENT_LEN * i);
}

/* What may stand between the IPv6 header and the upper layer. Returns the
 * octet that names what follows. */
static __u32 add_headers(struct input *in, struct frame *f, __u32 link)
{
	static const __u8 types[] = { NH_ROUTING, NH_HOP_BY_HOP, NH_DESTINATION, NH_FRAGMENT };
	__u32 n = pick(in, 4) ? pick(in, 3) : pick(in, 6);

	while (n--) {
		__u8 type = types[pick(in, 8) < 5 ? 0 : pick(in, 4)];
		__u32 at = f->length;

		if (type == NH_ROUTING) {
			add_srh(in, f, f->b + link);
			if (f->length > at && rarely(in, 16))
				f->b[at + 2] = take8(in); /* another routing type */
		} else if (more(f, 8)) {
			f->b[link] = type;
		}
		if (f->length > at)
			link = at;
	}
	return link;
}

static void add_upper(struct input *in, struct frame *f, __u32 link, const __u8 *src)
{
	switch (pick(in, 8)) {
	case 0:
	case 1:
		f->b[link] = NH_IPV4;
		return add_inner(in, f, 4, 0);
	case 2:
	case 3:
		f->b[link] = NH_IPV6;
		return add_inner(in, f, 6, 0);
	case 4:
		f->b[link] = NH_ETHERNET;
		return add_ethernet(in, f);
	case 5:
	case 6:
		f->b[link] = NH_UDP;
		return add_gtpu(in, f);
	}
	f->b[link] = transports[pick(in, sizeof(transports))];
	add_transport(in, f, f->b[link], src, 32);
}

/* To a SID, or to our GTP-U address. */
static void add_outer6(struct input *in, struct frame *f, int to_sid)
{
	__u32 at = f->length, link = at + 6;
	__u8 *ip = more(f, 40);

	ipv6_header(in, ip, NH_UDP);
	if (to_sid) {
		any_segment(in, ip + 24);
		link = add_headers(in, f, link);
		add_upper(in, f, link, ip + 8);
	} else {
		memcpy(ip + 24, gtpu6_address, 16);
		add_gtpu(in, f);
	}
	finish_ipv6(f, at);
}

/* To our GTP-U address, or to a prefix of H.M.GTP4.D. */
static void add_outer4(struct input *in, struct frame *f)
{
	__u32 at = f->length;
	__u8 *ip = more(f, 20);

	ipv4_header(in, ip, NH_UDP);
	st16(ip + 6, rarely(in, 8) ? take16(in) : 0);
	if (pick(in, 2))
		memcpy(ip + 16, gtpu4_address, 4);
	else
		ip[17] = 103;
	if (rarely(in, 8) && more(f, 8))
		ip[0] = 0x47;
	add_gtpu(in, f);
	finish_ipv4(f, at);
}

/* ---- the whole frame ---- */

static void change(struct input *in, struct frame *f)
{
	__u32 n = rarely(in, 2) ? pick(in, 6) : 0;

	while (n--) {
		/* mostly where the headers are */
		__u32 at = pick(in, 4) ? take8(in) : take16(in);

		if (at < f->length)
			f->b[at] = pick(in, 2) ? take8(in) : f->b[at] ^ 1 << pick(in, 8);
	}
	switch (pick(in, 16)) {
	case 0: /* cut short */
		if (f->length > ETH_LEN)
			f->length = ETH_LEN + take16(in) % (f->length - ETH_LEN);
		break;
	case 1: /* padded */
		more(f, pick(in, 64));
		break;
	}
}

static void make_frame(struct input *in, struct frame *f)
{
	static const __u16 tags[] = { TYPE_VLAN, TYPE_QINQ };
	__u32 kind = pick(in, 16), n = rarely(in, 4) ? pick(in, 3) : 0, type;
	__u8 *eth;

	f->length = 0;
	f->ifindex = 1 + pick(in, PORTS);
	eth = more(f, ETH_LEN);
	take_octets(in, eth + 5, 1);
	take_octets(in, eth + 11, 1);
	if (rarely(in, 4))
		station_mac(eth, take8(in));
	for (type = 12; n--; type += VLAN_LEN) {
		st16(f->b + type, be16(tags[pick(in, 2)]));
		st16(more(f, VLAN_LEN), be16(pick(in, 2) ? 100 : take16(in)));
	}
	st16(f->b + type, be16(kind >= 10 && kind < 14 && kind != 12 ? TYPE_IPV4 : TYPE_IPV6));
	if (kind < 8) {
		add_outer6(in, f, 1);
	} else if (kind < 10) {
		add_outer6(in, f, 0);
	} else if (kind == 10) {
		add_outer4(in, f);
	} else if (kind == 11 || kind == 13) {
		kind == 11 ? add_outer4(in, f) : add_inner(in, f, 4, 0);
	} else if (kind == 12 || kind == 14) {
		add_inner(in, f, 6, 0);
	} else {
		__u32 size = in->end - in->p;

		memcpy(more(f, size), in->p, size);
		in->p = in->end;
	}
	change(in, f);
	if (ld16(f->b + type) == be16(TYPE_IPV4) && !rarely(in, 8)) /* others end early */
		sum_ipv4(f, type + 2);
}

#endif
