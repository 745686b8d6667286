/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* NAT44: UEs of a pool share public addresses (docs/reference/semantics.md section 7; RFC
 * 4787, 5382, 5508). A UE's addresses and ports follow from its position in the pool, so that
 * neither direction looks anything up but one or two cache lines of its own ports. */
#ifndef CULVERT_NAT_H
#define CULVERT_NAT_H

#include "lookup.h"
#include "payload.h"

#define ICMP_HEADER 8

/* What nat_read() finds: the port, and above it these. */
#define NAT_PROTOCOL_SHIFT 16
#define NAT_READ_QUOTED (1 << 18)
#define NAT_READ_SYN (1 << 19)
#define NAT_READ_END (1 << 20) /* FIN or RST */
#define NAT_MAKE (1 << 21)     /* of nat_port_of(): make a mapping where there is none */
#define NAT_READ_DATA (1 << 22) /* of TCP */

/* ---- whose ---- */

INLINE int has_nat_ue(struct nat *nat, __be32 address)
{
	return (be32(address) & nat->mask) == nat->prefix;
}

INLINE int has_nat_address(struct nat *nat, __be32 address)
{
	return (be32(address) & nat->address_mask) == nat->address && nat->mask != ~0u;
}

/* Which NAT a UE is behind, or has a public address, counted from 1; 0: none. */
GLOBAL __u32 nat_of_ue(__be32 address)
{
	struct settings *cfg = &node_settings;
	__u32 i;

	for (i = 0; i < MAX_NATS && i < cfg->nats; i++)
		if (has_nat_ue(&cfg->nat[i], address))
			return i + 1;
	return 0;
}

GLOBAL __u32 nat_of_address(__be32 address)
{
	struct settings *cfg = &node_settings;
	__u32 i;

	for (i = 0; i < MAX_NATS && i < cfg->nats; i++)
		if (has_nat_address(&cfg->nat[i], address))
			return i + 1;
	return 0;
}

/* What NATs have to do with a packet from N6: the number of the one for whose public address it
 * is; NAT_OTHER: it is for a UE behind one, or from a public address; 0: nothing. */
#define NAT_OTHER 0xffu
GLOBAL __u32 nat_from_n6(__be32 src, __be32 dst)
{
	struct settings *cfg = &node_settings;
	__u32 i, other = 0;

	for (i = 0; i < MAX_NATS && i < cfg->nats; i++) {
		if (has_nat_address(&cfg->nat[i], dst))
			return i + 1;
		if (has_nat_ue(&cfg->nat[i], dst) || has_nat_address(&cfg->nat[i], src))
			other = NAT_OTHER;
	}
	return other;
}

/* NAT number `which`, counted from 1. */
INLINE struct nat *nat_number(__u32 which)
{
	return &node_settings.nat[(which - 1) & (MAX_NATS - 1)];
}

/* ---- rewriting ---- */

/* What checksum_change() takes, of a word of 32 bits. */
INLINE __u64 change_of(__u32 from, __u32 to)
{
	return (__u64)(__u32)~from + to;
}

/* The address at `field` of an IPv4 header. */
INLINE void nat_write_address(struct ipv4 *ip, void *field, __be32 to)
{
	__u32 from = ld32(field);

	st32(field, to);
	st16(&ip->checksum, checksum_change(ld16(&ip->checksum), change_of(from, to)));
}

/* The port (ICMP: the identifier) of the transport header at `l4`, whose packet's address
 * became `to`; what is behind `end` is not the packet's. By how much the header's sum changed
 * then: its own checksum makes up for the port, but not for the address. */
INLINE __u64 nat_write_port(struct xdp_md *ctx, __u32 l4, __u32 end, __u8 protocol,
			    __u32 destination, __u16 port, __be32 from, __be32 to)
{
	__u32 where = protocol == NH_ICMP ? 4 : destination ? 2 : 0;
	__u32 sum_at = protocol == NH_TCP ? TCP_CHECKSUM : protocol == NH_UDP ? 6 : 2;
	__u64 addresses = protocol == NH_ICMP ? 0 : change_of(from, to), ports;
	__u16 *field = at(ctx, l4 + where, 2), *sum = at(ctx, l4 + sum_at, 2), now;

	if (!field)
		return 0;
	ports = (__u64)(__u16)~ld16(field) + port;
	st16(field, port);
	if (!sum || l4 + sum_at + 2 > end || (protocol == NH_UDP && !ld16(sum)))
		return ports;
	now = checksum_change(ld16(sum), ports + addresses);
	st16(sum, !now && protocol == NH_UDP ? 0xffff : now);
	return protocol == NH_ICMP ? 0 : change_of(to, from);
}

/* The packet that the ICMP error at `l4` quotes, and with it the error's checksum. */
INLINE int nat_write_quoted(struct xdp_md *ctx, __u32 l4, __u32 end, __u32 destination, __u16 port,
			    __be32 from, __be32 to)
{
	__u32 inner = l4 + ICMP_HEADER;
	struct ipv4 *ip = at(ctx, inner, IPV4_LEN);
	__u16 *sum;
	__u64 change;

	if (!ip)
		return -1;
	nat_write_address(ip, destination ? &ip->dst : &ip->src, to);
	change = nat_write_port(ctx, inner + IPV4_LEN, end, ip->protocol, destination, port, from,
				to);
	sum = at(ctx, l4 + 2, 2);
	if (!sum)
		return -1;
	st16(sum, checksum_change(ld16(sum), change));
	return 0;
}

INLINE void nat_write_id(struct ipv4 *ip, __u16 id)
{
	__u64 change = (__u64)(__u16)~ld16(&ip->id) + id;

	st16(&ip->id, id);
	st16(&ip->checksum, checksum_change(ld16(&ip->checksum), change));
}

/* UE number `ue` of NAT `which` has a part of its public address's identifications, as of its
 * ports, so that fragments of two UEs are never put together (RFC 6864). It depends on nothing
 * but the former one: fragments of a datagram keep theirs together. That one, or -1: it means
 * nothing, since the packet at `l3` is no fragment and will be in none. */
GLOBAL int nat_identify(struct xdp_md *ctx, __u32 l3, __u32 which, __u32 ue)
{
	struct ipv4 *ip = at(ctx, l3, IPV4_LEN);
	struct nat *nat = nat_number(which);
	__u32 part;
	__u16 id;

	if (!ip || !nat->blocks ||
	    (be16(ld16(&ip->fragment)) & (IPV4_DF | IPV4_FRAGMENT_MASK)) == IPV4_DF)
		return -1;
	id = ld16(&ip->id);
	part = 0x10000 / nat->blocks;
	nat_write_id(ip, be16(ue % nat->blocks * part + be16(id) % part));
	return id;
}

/* One side of the IPv4 packet at `l3` becomes `to` and `port`. -1: it is cut short. */
GLOBAL int nat_rewrite(struct xdp_md *ctx, __u32 l3, __u32 how, __be32 to, __u32 port)
{
	struct ipv4 *ip = at(ctx, l3, IPV4_LEN);
	__u32 destination = how & NAT_DESTINATION, l4, end;
	void *field;
	__be32 from;

	if (!ip)
		return -1;
	field = destination ? &ip->dst : &ip->src;
	from = ld32(field);
	l4 = l3 + (ip->version_ihl & 0xf) * 4u;
	end = l3 + be16(ld16(&ip->length));
	nat_write_address(ip, field, to);
	if (how & NAT_ADDRESS)
		return 0;
	if (how & NAT_QUOTED)
		return nat_write_quoted(ctx, l4, end, !destination, be16(port), from, to);
	nat_write_port(ctx, l4, end, ip->protocol, destination, be16(port), from, to);
	return 0;
}

/* The packet is as it came: whoever gets it now sees or sends it in again. */
GLOBAL int nat_undo(struct xdp_md *ctx, struct packet *p)
{
	struct ipv4 *ip;
	__u32 how;

	if (!p || !p->nat.translated)
		return 0;
	ip = at(ctx, p->nat.l3, IPV4_LEN);
	if (ip && p->nat.translated & NAT_IDENTIFIED)
		nat_write_id(ip, p->nat.id);
	how = p->nat.translated >> NAT_SIDE;
	if (how)
		nat_rewrite(ctx, p->nat.l3, how | NAT_DESTINATION, p->nat.address[1],
			    p->nat.port[1]);
	how = p->nat.translated & (NAT_REWRITTEN | NAT_QUOTED | NAT_ADDRESS);
	if (how)
		nat_rewrite(ctx, p->nat.l3, how, p->nat.address[0], p->nat.port[0]);
	p->nat.translated = 0;
	return 0;
}

/* ---- what a packet has to translate ---- */

INLINE int is_icmp_query(__u8 type)
{
	return type == 0 || type == 8 || type == 13 || type == 14; /* echo, timestamp */
}

INLINE int is_quoting_error(__u8 type)
{
	return type == 3 || type == 11 || type == 12;
}

/* Of a transport header in a packet that goes to `end`: the port of the source or of the
 * destination, and its protocol; or -1. */
INLINE int nat_read_transport(struct xdp_md *ctx, __u32 l4, __u32 end, __u8 protocol,
			      __u32 destination)
{
	__u8 *head = at(ctx, l4, 8);
	int port;

	if (!head || l4 + 8 > end)
		return -1;
	port = be16(ld16(head + (destination ? 2 : 0)));
	switch (protocol) {
	case NH_UDP:
		return port | NAT_UDP << NAT_PROTOCOL_SHIFT;
	case NH_TCP:
		return port | NAT_TCP << NAT_PROTOCOL_SHIFT;
	case NH_ICMP:
		return is_icmp_query(*head) ? be16(ld16(head + 4)) | NAT_ICMP << NAT_PROTOCOL_SHIFT
					    : -1;
	}
	return -1;
}

/* ... of what an ICMP error quotes, which the host behind `address` has sent or would get. */
INLINE int nat_read_quoted(struct xdp_md *ctx, __u32 l4, __u32 end, __u32 destination,
			   __be32 address)
{
	struct ipv4 *ip = at(ctx, l4 + ICMP_HEADER, IPV4_LEN);
	int found;

	if (!ip || ip->version_ihl != 0x45 || be16(ld16(&ip->fragment)) & IPV4_OFFSET_MASK ||
	    ld32(destination ? &ip->dst : &ip->src) != address)
		return -1;
	found = nat_read_transport(ctx, l4 + ICMP_HEADER + IPV4_LEN, end, ip->protocol,
				   destination);
	return found < 0 ? found : found | NAT_READ_QUOTED;
}

/* Of the IPv4 packet at `l3`, which is whole or a first fragment: the port of a side and what
 * else counts; -1 where it has nothing that can be translated. */
GLOBAL int nat_read(struct xdp_md *ctx, __u32 l3, __u32 destination)
{
	struct ipv4 *ip = at(ctx, l3, IPV4_LEN);
	__u32 l4, end;
	__u8 *head;
	int found;

	if (!ip)
		return -1;
	l4 = l3 + (ip->version_ihl & 0xf) * 4u;
	end = l3 + be16(ld16(&ip->length));
	if (ip->protocol == NH_ICMP) {
		head = at(ctx, l4, 1);
		if (head && is_quoting_error(*head))
			return nat_read_quoted(ctx, l4, end, !destination,
					       ld32(destination ? &ip->dst : &ip->src));
	}
	found = nat_read_transport(ctx, l4, end, ip->protocol, destination);
	if (found < 0 || ip->protocol != NH_TCP)
		return found;
	head = at(ctx, l4, TCP_LEN);
	if (!head || l4 + TCP_LEN > end)
		return -1;
	if (head[TCP_FLAGS] & (TCP_FIN | TCP_RST))
		found |= NAT_READ_END;
	if (head[TCP_FLAGS] & TCP_SYN)
		found |= NAT_READ_SYN;
	if (l4 + (head[TCP_DATA_OFFSET] >> 4) * 4u < end)
		found |= NAT_READ_DATA;
	return found;
}

/* ---- mappings ---- */

/* The index of the first bucket of a public address, counted from 0, and a protocol. */
INLINE __u32 nat_first(struct nat *nat, __u32 protocol, __u32 address)
{
	return nat->buckets + (protocol * (~nat->address_mask + 1) + address) * NAT_BUCKETS;
}

INLINE __u32 nat_now(void)
{
	return bpf_ktime_get_ns() >> NAT_TIME_SHIFT;
}

/* Whether a slot's mapping is in use. */
INLINE int nat_lives(struct nat *nat, __u32 protocol, __u64 slot, __u32 now)
{
	__u32 life = protocol == NAT_UDP      ? nat->udp
		     : protocol == NAT_ICMP   ? nat->icmp
		     : slot & NAT_ESTABLISHED ? nat->tcp
					      : nat->tcp_transitory;

	return slot & NAT_USED && now - (__u32)slot <= life;
}

/* A slot after a packet of the UE's. The last one of a connection that the UE closes first is an
 * ACK, which must not undo the FIN. Data does: it is another connection's by this port. */
INLINE __u64 nat_slot(__u64 slot, __u32 read, __u32 now)
{
	__u64 state = read & NAT_READ_END    ? NAT_ENDED
		      : read & NAT_READ_SYN  ? slot & NAT_ESTABLISHED
		      : read & NAT_READ_DATA ? NAT_ESTABLISHED
		      : slot & NAT_ENDED     ? NAT_ENDED
					     : NAT_ESTABLISHED;

	return (__u64)(read & 0xffff) << 48 | NAT_USED | state | now;
}

/* The buckets of a block that a port may be in: the first, and the second << 16. */
INLINE __u32 nat_choices(__u32 port, __u32 buckets)
{
	__u32 hash = port * 0x9e3779b1u, again = (hash ^ hash >> 15) * 0x85ebca6bu;

	return ((hash >> 16) * buckets >> 16) | ((again >> 16) * buckets & 0xffff0000);
}

/* What nat_find() says of a bucket: a slot, and how good it is. */
#define NAT_SLOT 7
#define NAT_FITS 8   /* free */
#define NAT_PARITY 16 /* free, and even for an even port (RFC 4787 REQ-4) */
#define NAT_FOUND 32 /* the port's own */

/* The slot of `read`'s port in a bucket, refreshed with NAT_MAKE, or the best free one; 0: none. */
GLOBAL __u32 nat_find(__u32 which, __u32 index, __u32 read, __u32 now)
{
	struct nat_slots *in = bpf_map_lookup_elem(&nat_bucket, &index);
	struct nat *nat = nat_number(which);
	__u32 i, found = 0, fits, lives;
	__u64 slot, next;

	if (!in)
		return 0;
	for (i = 0; i < NAT_SLOTS; i++) {
		slot = *(volatile __u64 *)&in->slot[i];
		lives = nat_lives(nat, read >> NAT_PROTOCOL_SHIFT & 3, slot, now);
		if (slot & NAT_USED && slot >> 48 == (read & 0xffff)) {
			if (!(read & NAT_MAKE))
				return lives ? NAT_FOUND | i : 0;
			next = nat_slot(lives ? slot : 0, read, now);
			if (next != slot)
				__sync_val_compare_and_swap(&in->slot[i], slot, next);
			return NAT_FOUND | i;
		}
		fits = (read ^ i) & 1 ? NAT_FITS : NAT_FITS | NAT_PARITY;
		if (!lives && fits > (found & ~NAT_SLOT))
			found = fits | i;
	}
	return found;
}

/* Takes the slot that nat_find() found free. Whether it is the flow's now: another CPU may be
 * faster, with the same flow or with another. */
GLOBAL int nat_take(__u32 which, __u32 index, __u32 slot, __u32 read, __u32 now)
{
	struct nat_slots *in = bpf_map_lookup_elem(&nat_bucket, &index);
	__u64 *at, was, found;

	if (!in)
		return 0;
	at = &in->slot[slot & NAT_SLOT];
	was = *(volatile __u64 *)at;
	if (!nat_lives(nat_number(which), read >> NAT_PROTOCOL_SHIFT & 3, was, now)) {
		found = __sync_val_compare_and_swap(at, was, nat_slot(0, read, now));
		if (found == was)
			return 1;
		was = found;
	}
	return was & NAT_USED && was >> 48 == (read & 0xffff);
}

/* The external port of UE number `ue` for what nat_read() found; with NAT_MAKE it gets one.
 * 0: none. */
GLOBAL int nat_port_of(__u32 which, __u32 ue, __u32 read)
{
	struct nat *nat = nat_number(which);
	__u32 now = nat_now(), choices, first, start, other, one, two;

	if (!nat->blocks)
		return 0;
	choices = nat_choices(read & 0xffff, nat->block_buckets);
	start = ue % nat->blocks * nat->block_buckets; /* of the address's buckets */
	first = nat_first(nat, read >> NAT_PROTOCOL_SHIFT & 3, ue / nat->blocks);
	other = start + (choices >> 16);
	start += choices & 0xffff;
	one = nat_find(which, first + start, read, now);
	two = one & NAT_FOUND ? 0 : nat_find(which, first + other, read, now);
	if ((two & ~NAT_SLOT) > (one & ~NAT_SLOT)) {
		one = two;
		start = other;
	}
	if (!(one & NAT_FOUND) &&
	    !(one && read & NAT_MAKE && nat_take(which, first + start, one, read, now)))
		return 0;
	return NAT_FIRST_PORT + start * NAT_SLOTS + (one & NAT_SLOT);
}

/* ---- translating ---- */

/* Remembers what nat_undo() needs, and rewrites. */
INLINE int nat_translate(struct xdp_md *ctx, struct packet *p, __u32 how, __be32 from, __be32 to,
			 __u32 port_from, __u32 port)
{
	__u32 side = how & NAT_DESTINATION ? 1 : 0;

	p->nat.address[side] = from;
	p->nat.port[side] = port_from;
	p->nat.translated |= (how & ~NAT_DESTINATION) << side * NAT_SIDE;
	return nat_rewrite(ctx, p->nat.l3, how, to, port) ? REASON_INNER_MALFORMED : 0;
}

/* The packet of a UE at `l3`, in which nat_read() found a port, leaves as it is: not to be undone.
 * -1: its flow gets no port. */
GLOBAL int nat_leave(struct xdp_md *ctx, __u32 l3, __u32 which, __u32 read)
{
	struct ipv4 *ip = at(ctx, l3, IPV4_LEN);
	struct nat *nat = nat_number(which);
	__u32 ue, port;

	if (!ip || !nat->blocks)
		return -1;
	ue = be32(ld32(&ip->src)) & ~nat->mask;
	port = nat_port_of(which, ue, read | NAT_MAKE);
	if (!port)
		return -1;
	nat_identify(ctx, l3, which, ue);
	return nat_rewrite(ctx, l3, 0, be32(nat->address + ue / nat->blocks), port);
}

/* The packet of a UE at p->plan.keep gets its identification. */
INLINE void nat_take_id(struct xdp_md *ctx, struct packet *p, __u32 which, __u32 ue)
{
	int former = nat_identify(ctx, p->plan.keep, which, ue);

	if (former < 0)
		return;
	p->nat.id = former;
	p->nat.translated |= NAT_IDENTIFIED;
}

/* The packet of a UE at p->plan.keep leaves: its source becomes public, if the UE is behind a NAT.
 * 0, or a reason. */
INLINE int nat_source(struct xdp_md *ctx, struct packet *p)
{
	struct ipv4 *ip;
	struct nat *nat;
	__u32 ue, port, which;
	__be32 from, to;
	int read;

	ip = at(ctx, p->plan.keep, IPV4_LEN);
	if (!ip)
		return REASON_INNER_MALFORMED;
	from = ld32(&ip->src);
	which = nat_of_ue(from);
	nat = nat_number(which);
	if (!which || !nat->blocks)
		return 0;
	p->nat.l3 = p->plan.keep;
	ue = be32(from) & ~nat->mask;
	to = be32(nat->address + ue / nat->blocks);
	ip = at(ctx, p->plan.keep, IPV4_LEN);
	if (ip && be16(ld16(&ip->fragment)) & IPV4_OFFSET_MASK) {
		nat_take_id(ctx, p, which, ue);
		return nat_translate(ctx, p, NAT_REWRITTEN | NAT_ADDRESS, from, to, 0, 0);
	}
	if (p->port.flags & PORT_PARTIAL_CHECKSUM)
		complete_checksum(ctx, p->plan.keep, p->plan.keep_length, 4);
	read = nat_read(ctx, p->plan.keep, 0);
	if (read < 0)
		return REASON_NAT_PROTOCOL;
	port = nat_port_of(which, ue, read & NAT_READ_QUOTED ? read : read | NAT_MAKE);
	if (!port)
		return read & NAT_READ_QUOTED ? REASON_NAT_NO_MAPPING : REASON_NAT_PORTS;
	nat_take_id(ctx, p, which, ue);
	return nat_translate(ctx, p, NAT_REWRITTEN | (read & NAT_READ_QUOTED ? NAT_QUOTED : 0),
			     from, to, read & 0xffff, port);
}

/* The UE that has a public port, as what nat_read() found names it: its address, and its own
 * port in `port`; 0: nobody. */
INLINE __u32 nat_ue_of(struct nat *nat, __u32 public, __u32 read, __u32 *port)
{
	__u32 external = read & 0xffff, protocol = read >> NAT_PROTOCOL_SHIFT & 3;
	__u32 bucket = (external - NAT_FIRST_PORT) / NAT_SLOTS, block, ue;
	struct nat_slots *in;
	__u64 slot;

	if (external < NAT_FIRST_PORT || !nat->block_buckets)
		return 0;
	block = bucket / nat->block_buckets;
	ue = public * nat->blocks + block;
	if (block >= nat->blocks || ue > ~nat->mask)
		return 0;
	bucket += nat_first(nat, protocol, public);
	in = bpf_map_lookup_elem(&nat_bucket, &bucket);
	if (!in)
		return 0;
	slot = *(volatile __u64 *)&in->slot[external & (NAT_SLOTS - 1)];
	*port = slot >> 48;
	return nat_lives(nat, protocol, slot, nat_now()) ? nat->prefix + ue : 0;
}

/* The packet at p->nat.l3 is for a public address of `which`: it gets its UE's. 0, or a
 * reason. */
GLOBAL int nat_destination(struct xdp_md *ctx, struct packet *p, __u32 which)
{
	struct nat *nat = nat_number(which);
	struct ipv4 *ip;
	__u32 ue, port = 0;
	__be32 from;
	int read;

	if (!p)
		return REASON_NAT_PROTOCOL;
	ip = at(ctx, p->nat.l3, IPV4_LEN);
	if (!ip)
		return REASON_IPV4_MALFORMED;
	from = ld32(&ip->dst);
	read = nat_read(ctx, p->nat.l3, 1);
	if (read < 0)
		return REASON_NAT_PROTOCOL;
	ue = nat_ue_of(nat, be32(from) & ~nat->address_mask, read, &port);
	if (!ue)
		return REASON_NAT_NO_MAPPING;
	return nat_translate(
		ctx, p, NAT_REWRITTEN | NAT_DESTINATION | (read & NAT_READ_QUOTED ? NAT_QUOTED : 0),
		from, be32(ue), read & 0xffff, port);
}

#endif
