/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whose an address is: local SIDs, GTP-U addresses, UE pools, steering by
 * destination, prefixes, and what is only for the link. */
#ifndef CULVERT_LOOKUP_H
#define CULVERT_LOOKUP_H

#include "trie.h"

/* ---- the port ---- */

/* Whether a frame is for the port itself, as far as its address (`mac`) is known. Others
 * are for other hosts, or for everybody. */
INLINE int is_for_port(__u64 mac, const void *eth)
{
	return !mac || mac == ld64(eth) << 16; /* without the two octets behind it */
}

/* ---- SIDs ---- */

/* The index of the SID of the longest prefix that has an address; 0: none. A function: its key needs
 * room on the stack, and most nodes have no such SIDs. */
GLOBAL __u32 sid_of_prefix(__u64 hi, __u64 lo)
{
	struct sid_key key = { .prefixlen = 128 };
	struct words address = { hi, lo };
	__u32 *found;

	copy16_by4(&key.addr, &address);
	found = bpf_map_lookup_elem(&sid_by_prefix, &key);
	return found ? *found : 0;
}

/* The local SID that `dst` is, and its index; or NULL. */
INLINE struct local_sid *find_sid(struct settings *cfg, const void *dst, __u32 *index)
{
	__u64 hi = be64(ld64(dst));
	struct local_sid *sid = 0, *longer;
	__u32 i, other;

	for (i = 0; i < MAX_LOCATORS && i < cfg->locators; i++) {
		struct locator *l = &cfg->locator[i];

		if ((hi & l->mask) != l->hi)
			continue;
		*index = l->base + ((hi >> (l->shift & 63)) & l->function_mask);
		sid = bpf_map_lookup_elem(&local_sid, index);
		if (sid && !sid->behavior)
			sid = 0;
		/* only a NEXT-C-SID SID has longer ones in it */
		if (sid && !(sid->flavors & FLAVOR_NEXT_C_SID))
			return sid;
		break;
	}
	if (!cfg->sids_by_prefix)
		return sid;
	other = sid_of_prefix(ld64(dst), ld64(dst + 8));
	if (!other)
		return sid;
	longer = bpf_map_lookup_elem(&local_sid, &other);
	if (!longer || (sid && sid->length >= longer->length))
		return sid;
	*index = other;
	return longer;
}

/* ---- GTP-U ---- */

INLINE int is_gtpu4(struct settings *cfg, __u32 address)
{
	__u32 i;

	for (i = 0; i < MAX_GTPU_ADDRESSES && i < cfg->gtpu4_count; i++)
		if (cfg->gtpu4[i] == address)
			return 1;
	return 0;
}

INLINE int is_gtpu6(struct settings *cfg, const void *address)
{
	__u32 i;

	for (i = 0; i < MAX_GTPU_ADDRESSES && i < cfg->gtpu6_count; i++)
		if (equal16(&cfg->gtpu6[i], address))
			return 1;
	return 0;
}

/* ---- UE pools ---- */

INLINE struct pool4 *find_pool4(struct settings *cfg, __u32 dst)
{
	__u32 i;

	for (i = 0; i < MAX_POOLS && i < cfg->pools4; i++)
		if ((dst & cfg->pool4[i].mask) == cfg->pool4[i].prefix)
			return &cfg->pool4[i];
	return 0;
}

INLINE struct pool6 *find_pool6(struct settings *cfg, __u64 hi)
{
	__u32 i;

	for (i = 0; i < MAX_POOLS && i < cfg->pools6; i++)
		if ((hi & cfg->pool6[i].mask) == cfg->pool6[i].hi)
			return &cfg->pool6[i];
	return 0;
}

/* Of the tunnel to a UE; 0: none. */
INLINE __u32 pool4_index(struct settings *cfg, __u32 dst)
{
	struct pool4 *pool = find_pool4(cfg, dst);

	return pool && !pool->sessions ? pool->base + (dst & ~pool->mask) : 0;
}

INLINE __u32 pool6_index(struct settings *cfg, const void *dst)
{
	__u64 hi = be64(ld64(dst));
	struct pool6 *pool = find_pool6(cfg, hi);

	return pool && !pool->sessions ? pool->base + (hi & ~pool->mask) : 0;
}

/* ---- steering ---- */

/* What a look-up came to, with what led there. */
INLINE struct cached *remember_target(struct cached *slot, __u64 to)
{
	slot->kind = to >> 32;
	slot->index = to;
	return slot;
}

/* By destination, in the table of a port (its ifindex) first, and then in the node's;
 * `ifindex` 0: only there. The node's own addresses are no port's. `hi` and `lo` are the
 * address in network order, for IPv4 lo is ~0 and `family` CACHE_IPV4, else 0. What is not
 * there is remembered as well. */
INLINE struct cached *steered_from(struct settings *cfg, __u64 hi, __u64 lo, __u32 family,
				   __u32 ifindex)
{
	__u32 table = family | cache_table(ifindex);
	struct cached *slot = cache_slot(hi, lo, table);
	__u32 now = cache_generation(cfg);
	__u64 to, own;

	if (!slot || cache_holds(slot, hi, lo, table, now))
		return slot;
	to = target_of(hi, lo, family, 0);
	if (ifindex && to >> 32 != TARGET_PASS) {
		own = target_of(hi, lo, family, ifindex);
		to = own ?: to;
	}
	cache_fill(slot, hi, lo, table, now);
	return remember_target(slot, to);
}

/* What one table alone says of an address: that of a tenant, a VPN or members. `guarded` is
 * CACHE_GUARDED or 0. */
INLINE struct cached *target_in(struct settings *cfg, __u64 hi, __u64 lo, __u32 family,
				__u32 number, __u32 guarded)
{
	__u32 table = family | cache_table(number) | guarded;
	struct cached *slot = cache_slot(hi, lo, table);
	__u32 now = cache_generation(cfg);

	if (!slot || cache_holds(slot, hi, lo, table, now))
		return slot;
	cache_fill(slot, hi, lo, table, now);
	return remember_target(slot, target_of(hi, lo, family, number));
}

INLINE struct cached *steered_destination(struct settings *cfg, __u64 hi, __u64 lo, __u32 family)
{
	return steered_from(cfg, hi, lo, family, 0);
}

/* Has its slot hold what steers a destination. A function: mostly it does already. */
GLOBAL int remember_steered(__u64 hi, __u64 lo, __u32 family)
{
	return steered_destination(&node_settings, hi, lo, family) ? 0 : -1;
}

/* Whether the kernel keeps packets to an address, which is this node's or a GTP-U one. Functions:
 * few are asked, and the verifier goes through them once. */
GLOBAL int stays4(__u32 address)
{
	struct settings *cfg = &node_settings;
	struct cached *to;

	if (is_gtpu4(cfg, address))
		return 1;
	to = steered_destination(cfg, address, ~0ull, CACHE_IPV4);
	return to && to->kind == TARGET_PASS;
}

GLOBAL int stays6(__u64 hi, __u64 lo)
{
	struct settings *cfg = &node_settings;
	struct words address = { hi, lo };
	struct cached *to;

	if (is_gtpu6(cfg, &address))
		return 1;
	to = steered_destination(cfg, hi, lo, 0);
	return to && to->kind == TARGET_PASS;
}

/* ---- traffic classes ---- */

/* The way of a packet with the octet `tos` at a destination with classes, or NULL. */
INLINE struct class_way *class_way_of(__u32 index, __u32 tos, __u32 row)
{
	struct classifier *of = bpf_map_lookup_elem(&classifier, &index);
	__u32 way = row;

	if (of)
		way += of->column[tos >> 2 & 63];
	return bpf_map_lookup_elem(&class_way, &way);
}

/* The classifier of what arrives by a port with PORT_SOURCES: that of its VLAN, or of all
 * that have none of their own, and of the longest prefix that has its source address, in
 * network order (IPv4: `hi`). 0: that of the port. */
GLOBAL __u32 classifier_of_source(__u32 from, __u64 hi, __u64 lo)
{
	struct lpm6_key key ALIGNED = { .prefixlen = 160, .table = from };
	__u32 *found;

	st64(&key.addr, hi);
	st64(&key.addr.b[8], lo);
	found = bpf_map_lookup_elem(&class_by_source, &key);
	if (!found && from & CLASS_VLAN_MASK) {
		key.table = from & ~CLASS_VLAN_MASK;
		found = bpf_map_lookup_elem(&class_by_source, &key);
	}
	return found ? *found : 0;
}

/* The same for what arrives: `from` is a table of class_by_source. A function: packets
 * without a class do not pay for the stack that it needs. */
static __attribute__((noinline)) struct class_way *class_way_from(__u32 from, __u32 tos, __u32 row,
								  __u64 hi, __u64 lo)
{
	__u32 ifindex = from & (MAX_PORTS - 1), index = 0;
	struct port *in = bpf_map_lookup_elem(&port, &ifindex);

	if (!in)
		return 0;
	if (in->flags & PORT_SOURCES)
		index = classifier_of_source(from, hi, lo);
	return class_way_of(index ?: in->classifier, tos, row);
}

/* ---- prefixes ---- */

INLINE int in_prefixes(struct prefix6 *list, __u32 max, __u32 count, struct u128 v)
{
	__u32 i;

	for (i = 0; i < max && i < count; i++)
		if ((v.hi & list[i].mask_hi) == list[i].hi &&
		    (v.lo & list[i].mask_lo) == list[i].lo)
			return 1;
	return 0;
}

INLINE int in_domain(struct settings *cfg, const void *address)
{
	return in_prefixes(cfg->domain, MAX_DOMAINS, cfg->domains, ld128(address));
}

/* Addresses that no router forwards to. */
INLINE int is_local4(__u32 address)
{
	return address >> 24 == 127 || address >> 28 == 0xe || address == 0xffffffff ||
	       address >> 16 == 0xa9fe;
}

INLINE int is_link_local(const __u8 *address)
{
	return address[0] == 0xfe && (address[1] & 0xc0) == 0x80;
}

INLINE int is_local6(const void *address)
{
	return *(const __u8 *)address == 0xff || is_link_local(address);
}

/* ---- martians ----
 * Addresses that no packet has that a router sends on (RFC 1812 5.3.7, RFC 6890, RFC
 * 4291): to one, and from one. Of multicast groups only those of a link are such
 * destinations (RFC 5771 section 4, RFC 4291 section 2.7). The path asks is_martian_source of
 * destinations, too, and so leaves all groups to the journey. */

INLINE int is_martian_source4(__be32 address)
{
	__u32 first = address & 0xff;

	return first - 1 >= 0xdf || first == 127 || (address & 0xffff) == be16(0xa9fe);
}

INLINE int is_martian4(__be32 address)
{
	__u32 a = be32(address);

	return a >> 28 == 0xe ? a >> 8 == 0xe00000 : is_martian_source4(address);
}

INLINE int is_martian_source6(const void *address)
{
	__u64 hi = ld64(address); /* nobody has an address in ::/64: ::1, IPv4 in IPv6 */

	return !hi || (hi & 0xff) == 0xff || (hi & be16(0xffc0)) == be16(0xfe80);
}

INLINE int is_martian6(const void *address)
{
	const __u8 *b = address;

	return b[0] == 0xff ? (b[1] & 0xf) <= 2 : is_martian_source6(address);
}

#endif
