/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tables of one run, as the loader would write them: every behaviour,
 * policies, tunnels, steering, routes, next hops in every state. The seed
 * varies what a configuration may vary. */
#ifndef CULVERT_NATIVE_WORLD_H
#define CULVERT_NATIVE_WORLD_H

#include "helpers.h"
#include "input.h"

#define PORTS 8       /* ifindex 1..PORTS */
#define SIDS 64
#define POLICIES 8
#define LISTS 12
#define MOBILES 24
#define TUNNELS 24
#define ADJACENCIES 16
#define SOURCES 4
#define TEID_SLOTS 12 /* tunnel[1..12) by TEID; from 12 on by hash or prefix */
#define TABLE 100
#define PDRS 40
#define PDR_SLOTS 16 /* pdr[1..16) by TEID; then a pool of 8, and what only filters lead to */
#define FORWARDINGS 10
#define FILTERS 24
#define METERS 6
#define SLICES 3
#define PODS 4

/* Links of Ethernet sessions: without a tag, and VLAN 100. */
#define LINK (3u << 12)
#define LINK_VLAN (LINK | 100)
#define FRAME_HEADS 3 /* the last entries of pdr: what comes by a link for a session */
#define FRAME_HEAD(n) (PDRS - FRAME_HEADS + (n) % FRAME_HEADS)
#define FRAME_SLOT(i) ((i) < PDR_SLOTS && (i) % 5 == 4) /* found by TEID */

static const __u8 locator_prefix[8] = { 0x20, 0x01, 0x0d, 0xb8, 0x01, 0x00 };
static const __u8 gtpu6_address[16] = { 0x20, 0x01, 0x0d, 0xb8, 0xff, [15] = 1 };
static const __u8 gtpu4_address[4] = { 192, 0, 2, 1 };

/* What frames are aimed at. */
struct aims {
	__u32 sids;
	struct in6 sid[SIDS];
	__u8 sid_length[SIDS];
};

static struct aims aims;

/* What outlives one. */
static struct {
	__u32 made;
	int disturbed;
} worlds;

#define VALUE(map, type, index) ((type *)map_of(&map)->values + (index))

static void make_maps(void)
{
	make_map_of(&node_settings, sizeof(node_settings));
	MAKE_MAP(port, PORTS + 4);
	MAKE_MAP(target_by_port, ENTRIES);
	MAKE_MAP(sid_by_prefix, ENTRIES);
	MAKE_MAP(local_sid, SIDS);
	MAKE_MAP(sid_counter, SIDS);
	MAKE_MAP(mobile, MOBILES);
	MAKE_MAP(limit_by_group, ENTRIES);
	MAKE_MAP(target_by_dst4, ENTRIES);
	MAKE_MAP(target_by_dst6, ENTRIES);
	MAKE_MAP(pod, PODS);
	MAKE_MAP(overlay, 1);
	MAKE_MAP(untranslated, 1);
	MAKE_MAP(lookup_cache, 1);
	MAKE_MAP(tunnel, TUNNELS);
	MAKE_MAP(tunnel_by_teid, ENTRIES);
	MAKE_MAP(pdr, PDRS);
	MAKE_MAP(refused, PDRS);
	MAKE_MAP(pdr_by_teid, ENTRIES);
	MAKE_MAP(pdr_by_ue, ENTRIES);
	MAKE_MAP(filter, FILTERS);
	MAKE_MAP(frame_filter, FILTERS);
	MAKE_MAP(station, ENTRIES);
	MAKE_MAP(forwarding, FORWARDINGS);
	MAKE_MAP(meter, METERS);
	MAKE_MAP(slice_counter, 2 * SLICES);
	MAKE_MAP(slice_meter, 2 * SLICES);
	MAKE_MAP(source, SOURCES);
	MAKE_MAP(sr_policy, POLICIES);
	MAKE_MAP(segment_list, LISTS);
	MAKE_MAP(list_counter, LISTS);
	MAKE_MAP(route4, ENTRIES);
	MAKE_MAP(route6, ENTRIES);
	MAKE_MAP(adjacency, ADJACENCIES);
	MAKE_MAP(outcomes, REASON_COUNT);
	MAKE_MAP(errors_left, 2);
	MAKE_MAP(trace_filter, 1);
	MAKE_MAP(journey_state, 1);
	MAKE_MAP(move_scratch, 1);
	MAKE_MAP(trace_scratch, 1);
	MAKE_MAP(device, PORTS + 4);
}

static void empty_maps(void)
{
	__u32 i;

	for (i = 0; i < map_count; i++) {
		struct native_map *m = maps[i];

		/* what was remembered of the world before has another generation */
		if (m == map_of(&lookup_cache) && !worlds.disturbed)
			continue;
		if (is_array(m) || m->type == BPF_MAP_TYPE_DEVMAP)
			memset(m->values, 0, m->max_entries * m->value_size);
		m->count = 0;
	}
	worlds.disturbed = 0;
	aims.sids = 0;
}

/* Into the first free place of a hash or trie. */
static void put(void *map, const void *key, const void *value)
{
	struct native_map *m = map_of(map);

	must(m->count < m->max_entries, "the map is full");
	memcpy(m->keys + m->count * m->key_size, key, m->key_size);
	memcpy(m->values + m->count++ * m->value_size, value, m->value_size);
}

static void put_target6(const void *addr, __u32 length, __u32 kind, __u32 index)
{
	struct lpm6_key key = { .prefixlen = 32 + length };
	struct target to = { kind, index };

	memcpy(&key.addr, addr, 16);
	put(&target_by_dst6, &key, &to);
}

static void put_target4(__u8 a, __u8 b, __u32 length, __u32 kind, __u32 index)
{
	struct lpm4_key key = { .prefixlen = 32 + length, .addr = be32((__u32)a << 24 | b << 16) };
	struct target to = { kind, index };

	put(&target_by_dst4, &key, &to);
}

/* ---- next hops ---- */

static const __u16 mtus[] = { 1500, 1500, 9000, 1280, 576, 0 };

static void make_next_hops(struct input *in)
{
	__u32 i, n;

	for (i = 1; i <= PORTS; i++)
		*VALUE(device, __u32, i) = i == PORTS ? 0 : i;
	for (i = 1; i < ADJACENCIES; i++) {
		struct adjacency *a = VALUE(adjacency, struct adjacency, i);
		struct next_hop *h;

		a->current = next_number(in) & 1;
		h = &a->half[a->current];
		n = next_number(in);
		h->ifindex = 1 + i % PORTS;
		h->mtu = mtus[n % 6];
		h->flags = n >> 8 & 7
				   ? NEXT_HOP_READY |
					     ((n >> 11 & 7)
						      ? 0
						      : NEXT_HOP_PASS |
								(n >> 14 & 1 ? NEXT_HOP_KNOWN : 0))
				   : 0;
		h->tags = (n >> 16 & 7) > 5 ? (n >> 16 & 7) - 5 : 0;
		h->tpid[0] = TYPE_QINQ;
		h->tpid[1] = TYPE_VLAN;
		h->vlan[0] = h->vlan[1] = n >> 20 & 0xfff;
		memset(h->dst, 0x02, 6);
		memset(h->src, 0x06, 6);
	}
}

static void make_routes(struct input *in)
{
	__u32 i, j;

	for (i = 0; i < 12; i++) {
		struct lpm6_key key6 = { .prefixlen = 32 + (i < 2 ? 0 : 8 * i),
					 .table = i & 1 ? TABLE : MAIN_TABLE };
		struct lpm4_key key4 = { .prefixlen = 32 + (i < 2 ? 0 : 2 * i),
					 .table = key6.table };
		struct route r = { .count = next_number(in) % (MAX_NEXT_HOPS + 1) };

		if (i < 2 && next_number(in) & 1)
			continue; /* no default: the kernel is asked */
		memcpy(&key6.addr, locator_prefix, 6);
		key6.addr.b[6] = i;
		key4.addr = be32(10u << 24 | i << 16);
		for (j = 0; j < r.count; j++)
			r.adjacency[j] = 1 + next_number(in) % (ADJACENCIES - 1);
		put(&route6, &key6, &r);
		put(&route4, &key4, &r);
	}
}

/* ---- policies ---- */

static void any_sid_address(struct input *in, struct in6 *to)
{
	memcpy(to, locator_prefix, 8);
	to->b[6] = next_number(in) & 1;
	to->b[7] = next_number(in) % SIDS;
}

static void make_policies(struct input *in)
{
	__u32 i, j;

	for (i = 1; i < LISTS; i++) {
		struct segment_list *l = VALUE(segment_list, struct segment_list, i);

		l->adjacency = next_number(in) % ADJACENCIES;
		l->count = i <= 3 ? i : 1 + next_number(in) % MAX_SEGMENTS;
		memcpy(&l->source, gtpu6_address, 16);
		for (j = 0; j < l->count; j++)
			any_sid_address(in, &l->segment[j]);
	}
	for (i = 1; i < POLICIES; i++) {
		struct sr_policy *p = VALUE(sr_policy, struct sr_policy, i);

		p->behavior = H_ENCAPS + (i - 1) % 4;
		p->count = next_number(in) % 8 ? 1 + next_number(in) % MAX_SEGMENT_LISTS : 0;
		for (j = 0; j < p->count; j++) {
			p->list[j].threshold = (j + 1ull) * 0xffffffff / p->count;
			p->list[j].list = 1 + next_number(in) % (LISTS - 1);
		}
	}
}

/* ---- SIDs ---- */

/* How many bits: whole octets, mostly. */
static __u8 bits(struct input *in, __u32 least, __u32 most)
{
	__u32 n = next_number(in), count = least + n % (most - least + 1);

	return n >> 8 & 3 && (count & ~7) >= least ? count & ~7 : count;
}

static __u32 mobile_of(struct input *in, __u8 behavior, __u32 index)
{
	struct mobile *m = VALUE(mobile, struct mobile, index);

	any_sid_address(in, &m->source);
	any_sid_address(in, &m->target);
	m->adjacency = next_number(in) % ADJACENCIES;
	m->pdu_type = 1 + next_number(in) % PDU_UNSTRUCTURED;
	m->container = next_number(in) % 3;
	m->source_length = bits(in, 0, 96);
	m->target_length = bits(in, 0, 56);
	m->args_offset = bits(in, behavior == END_M_GTP6_D, 88);
	if (behavior == END_LIMIT) {
		m->group_bits = next_number(in) % 33;
		m->rate_bits = next_number(in) % 33;
		m->rate_unit = 1000 * (1 + next_number(in) % 10000);
	}
	if (behavior == BEHAVIOR_NONE) { /* H.M.GTP4.D */
		m->policy = next_number(in) % 3;
		/* a prefix: nothing behind its length */
		st128(&m->target, head128(ld128(&m->target), m->target_length));
	}
	return index;
}

/* What the arguments leave of a SID's 128 bits. */
static __u8 sid_length(struct input *in, __u8 behavior)
{
	static const __u8 plain[] = { 64, 64, 64, 64, 80, 128 };

	switch (behavior) {
	case END_M_GTP4_E:
		return bits(in, 32, 56);
	case END_M_GTP6_E:
	case END_M_GTP6_D:
	case END_M_GTP6_D_DI:
		return bits(in, 64, 88);
	case END_LIMIT:
		return 64;
	}
	return plain[next_number(in) % 6];
}

static int by_upper_layer(__u8 behavior)
{
	return behavior >= END_M_GTP6_D && behavior <= END_M_GTP4_E;
}

static void make_sid(struct input *in, __u32 index)
{
	struct local_sid *s = VALUE(local_sid, struct local_sid, index);
	struct sid_key key = {};
	__u32 n = next_number(in), aim = aims.sids++;

	s->behavior = 1 + (index - 1) % (H_ENCAPS - 1);
	s->flavors = by_upper_layer(s->behavior) ? 0 : n & 15;
	s->flags = n >> 4 & 3;
	if (s->behavior >= END_DT4 && s->behavior <= END_DT46 && n >> 10 & 1)
		s->flags |= SID_SESSIONS;
	s->length = sid_length(in, s->behavior);
	s->block_length = s->flavors & FLAVOR_NEXT_C_SID ? 32 + (n >> 6 & 15) : 0;
	if (s->behavior >= END_MAP && s->behavior <= END_M_GTP4_E)
		s->mobile = mobile_of(in, s->behavior, 1 + aim % (MOBILES - 4));
	if (s->behavior == END_X || (s->behavior >= END_DX2 && s->behavior <= END_DX6))
		s->adjacency = 1 + (n >> 12) % (ADJACENCIES - 1);
	s->table = s->behavior == END_T || s->behavior >= END_DT4
			   ? (n >> 20 & 1 ? TABLE : MAIN_TABLE)
			   : MAIN_TABLE;
	s->policy = 1 + (n >> 24) % 2; /* of layer 3 */
	memcpy(&aims.sid[aim], locator_prefix, 8);
	aims.sid[aim].b[6] = s->length == 64 ? 0 : 1;
	aims.sid[aim].b[7] = index - (s->length == 64);
	if (s->length < 64)
		aims.sid[aim].b[2] = index;
	aims.sid_length[aim] = s->length;
	if (s->length == 64)
		return; /* found by the locator */
	key.prefixlen = s->length;
	memcpy(&key.addr, &aims.sid[aim], 16);
	put(&sid_by_prefix, &key, &index);
}

/* ---- GTP-U ---- */

/* What a tunnel has counted before: for some, just so much that the next
 * packet turns the word's halves. */
static struct counter volume_start(__u32 index)
{
	return (struct counter){
		.packets = (index & 1) * ((1 << 23) - 1) + (index >> 1 & 1) * (1 << 23),
		.bytes = (index >> 2 & 1) * ((1ull << 39) - 1) + (index >> 3 & 1) * (1ull << 39),
	};
}

static struct volume volume_of(struct counter c)
{
	return (struct volume){
		.word = (c.packets << 40) + c.bytes,
		.byte_halves = c.bytes >> 39,
		.packet_halves = (c.packets + (c.bytes >> 40)) >> 23,
	};
}

/* The halves must agree with the word after each packet. */
static struct counter volume_count(const struct volume *v)
{
	struct counter c = { .bytes = (__u64)(v->byte_halves >> 1) << 40 |
				      (v->word & 0xffffffffff) };

	must((v->byte_halves & 1) == (v->word >> 39 & 1), "%u halves of bytes, word %llx",
	     v->byte_halves, v->word);
	must((v->packet_halves & 1) == v->word >> 63, "%u halves of packets, word %llx",
	     v->packet_halves, v->word);
	c.packets = ((__u64)(v->packet_halves >> 1) << 24 | v->word >> 40) - (c.bytes >> 40);
	return c;
}

static void make_tunnels(struct input *in)
{
	__u32 i;

	for (i = 1; i < SOURCES; i++) {
		struct in6 *s = VALUE(source, struct in6, i);

		memcpy(s, gtpu6_address, 16);
		if (i == 1) {
			memset(s, 0, 10);
			memset(s->b + 10, 0xff, 2);
			memcpy(s->b + 12, gtpu4_address, 4);
		}
	}
	for (i = 1; i < TUNNELS; i++) {
		struct tunnel *t = VALUE(tunnel, struct tunnel, i);
		__u32 n = next_number(in), teid = 0xabc00 + i;

		t->volume = volume_of(volume_start(i));
		t->key = i < TEID_SLOTS ? (n & 0xff000000) | i : teid;
		t->action = n % (TUNNEL_LIST + 1);
		t->teid = next_number(in);
		t->ipv4 = t->action != TUNNEL_SRV6 && n >> 8 & 1;
		t->source = t->ipv4 ? 1 : 2;
		t->adjacency = (n >> 9) % ADJACENCIES;
		t->qfi = n >> 13 & 63;
		t->container = (n >> 19) % 3;
		any_sid_address(in, &t->remote);
		t->index = t->action == TUNNEL_DECAP  ? (n >> 21 & 1 ? TABLE : MAIN_TABLE)
			   : t->action == TUNNEL_SRV6 ? 1
						      : 1 + (n >> 21 & 1);
		if (i >= TEID_SLOTS && i & 1)
			put(&tunnel_by_teid, &teid, &i);
	}
}

/* ---- steering ---- */

/* ---- sessions ---- */

static void make_forwardings(struct input *in)
{
	__u32 i;

	for (i = 1; i < FORWARDINGS; i++) {
		struct forwarding *f = VALUE(forwarding, struct forwarding, i);
		__u32 n = next_number(in);

		f->kind = n % (FORWARD_LINK + 1);
		f->ipv4 = f->kind == FORWARD_GTPU && n >> 4 & 1;
		f->adjacency = (n >> 5) % ADJACENCIES;
		f->slice = (n >> 9) % SLICES;
		f->internal = !(n >> 11 & 3);
		f->args_at = n >> 12 & 1 ? 64 : 0;
		f->tos = n >> 13;
		f->tos_mask = n >> 21 & 1 ? 0xfc : 0;
		any_sid_address(in, &f->remote);
		memcpy(&f->source, gtpu6_address, 16);
		f->index = f->kind == FORWARD_TABLE  ? (n >> 22 & 1 ? TABLE : MAIN_TABLE)
			   : f->kind == FORWARD_LINK ? (n >> 22 & 1 ? LINK_VLAN : LINK)
						     : 1 + (n >> 22 & 1);
	}
	for (i = 1; i < METERS; i++)
		*VALUE(meter, struct meter, i) = (struct meter){
			.rate = next_number(in) & 1 ? 0xffffffff : 0,
			.next = i + 1 < METERS ? i + 1 : 0,
			.unit = i & 1,
			.window = 62500,
		};
	for (i = 2; i < 2 * SLICES; i++)
		VALUE(slice_meter, struct meter, i)->rate = next_number(in) & 1 ? 0xffffffff : 0;
}

/* What a frame may be about, so that filters and stations find it. */
static void station_mac(__u8 *mac, __u32 n)
{
	memset(mac, 0, 6);
	mac[0] = 2;
	mac[5] = 1 + n % 4;
}

static void make_frame_filter(struct input *in, struct frame_filter *f)
{
	__u32 n = next_number(in);

	f->flags = n & n >> 8;
	station_mac(f->source, n >> 16);
	station_mac(f->destination, n >> 18);
	station_mac(f->source_to, n >> 17);
	station_mac(f->destination_to, n >> 19);
	f->type = n >> 20 & 1 ? TYPE_IPV4 : TYPE_IPV6;
	f->c_tag = f->s_tag = n >> 21 & 1 ? 100 : n >> 20;
}

static void make_filters(struct input *in)
{
	__u32 i;

	for (i = 0; i < FILTERS; i++) {
		struct filter *f = VALUE(filter, struct filter, i);
		__u32 n = next_number(in);

		f->pdr = n % PDRS;
		f->flags = n >> 8 & n >> 16;
		f->qfis = n & 0x40 ? 1ull << (n >> 24 & 63) | 1 : 0;
		f->protocol = n & 0x80 ? NH_UDP : NH_TCP;
		f->remote_length = n >> 20 & 127;
		f->local_length = n >> 13 & 127;
		f->remote_ports[1] = f->local_ports[1] = n & 0x1000 ? 0xffff : n >> 5;
		f->tos_mask = n >> 3 & 1;
		f->flow_label = n >> 27 & 1 ? FILTER_FRAME : 0;
		any_sid_address(in, &f->remote);
		make_frame_filter(in, VALUE(frame_filter, struct frame_filter, i));
	}
}

/* ---- Ethernet sessions ---- */

static __u32 link_of(__u32 session)
{
	return session % 2 ? LINK : LINK_VLAN;
}

/* A rule of an Ethernet session, and what leads to its frames from the link. */
static void make_frame_rule(__u32 i, struct pdr *r)
{
	__u32 session = i % FRAME_HEADS;

	r->qfi |= PDR_FRAMES;
	r->source6 = 1 + session;
	if (FRAME_SLOT(i)) {
		r->source4 = FRAME_HEAD(session);
		return;
	}
	r->flags |= PDR_DOWNLINK;
	r->source4 = link_of(session);
}

/* What was heard on links before: again for each run, which may hear more. */
static void make_stations(void)
{
	struct station_key key = {};
	struct station s = {};
	__u32 n;

	map_of(&station)->count = 0;
	for (n = 0; n < FRAME_HEADS; n++) {
		s.pdr = FRAME_HEAD(n);
		s.session = 1 + s.pdr % FRAME_HEADS;
		key.link = link_of(s.pdr % FRAME_HEADS);
		station_mac(key.mac, n);
		put(&station, &key, &s);
	}
}

static void make_links(void)
{
	struct port_key key = { .ifindex = 4 };
	struct target to = { TARGET_LINK, LINK };

	put(&target_by_port, &key, &to);
	key = (struct port_key){ .ifindex = 5, .outer_vlan = 100 };
	to.index = LINK_VLAN;
	put(&target_by_port, &key, &to);
}

/* Quotas are out of reach or used up, and rates so high that the time between
 * two runs does not matter: they must come to the same. */
static void make_sessions(struct input *in)
{
	__u32 i, n, teid;
	struct in6 ue = {};

	make_forwardings(in);
	make_filters(in);
	for (i = 1; i < PDRS; i++) {
		struct pdr *r = VALUE(pdr, struct pdr, i);

		n = next_number(in);
		r->volume = volume_of(volume_start(i));
		r->action = n & 8 ? PDR_FORWARD : (n & 7) % (PDR_FORWARD + 1);
		r->flags = (n >> 4 & (PDR_SOURCE4 | PDR_SOURCE6 | PDR_DUPLICATE | PDR_METERS |
				      PDR_DOWNLINK)) |
			   (n >> 12) % 3 << PDR_CONTAINER_SHIFT | (i < PDR_SLOTS ? PDR_BY_TEID : 0);
		r->forwarding = r->action == PDR_FILTERS ? n >> 20 & 7 : (n >> 20) % FORWARDINGS;
		r->more = r->action == PDR_FILTERS ? (n >> 16) % FILTERS : (n >> 16) % METERS;
		r->teid = next_number(in);
		r->qfi = n >> 24 & 0x7f;
		r->generation = n >> 18;
		r->rate = n >> 9 & 1 ? 0xffffffff : 0;
		r->stop =
			n >> 27 & 3 ? 0 : usage_units(&r->volume) + (n >> 29 & 1 ? 0 : USAGE_AHEAD);
		r->notify = n >> 30 & 1 ? usage_units(&r->volume) + 1 : 0;
		VALUE(refused, struct refused, i)->volume = volume_of(volume_start(i));
		VALUE(refused, struct refused, i)->notify =
			n >> 28 & 1 ? usage_units(&r->volume) : 0;
		r->source4 = 10;
		if (FRAME_SLOT(i) || i >= FRAME_HEAD(0))
			make_frame_rule(i, r);
		teid = 0x5e000000 + i;
		if (i >= PDR_SLOTS + 8 && i & 1)
			put(&pdr_by_teid, &teid, &i);
	}
	for (i = PDR_SLOTS + 8; i < PDR_SLOTS + 12; i++) {
		memset(&ue, 0, sizeof(ue));
		memset(ue.b + 10, 0xff, 2);
		ue.b[12] = 10;
		ue.b[13] = 220;
		ue.b[15] = i;
		put(&pdr_by_ue, &ue, &i);
	}
	put_target4(10, 221, 16, TARGET_PDR, PDRS - 2);
}

/* 10.107.0.0/17 and the like of IPv6: two pods, and one that is gone. */
static void make_pods(struct input *in)
{
	__u8 address[16] = { 0x20, 0x01, 0x0d, 0xb8, 0xee, 7 };
	struct overlay *o = VALUE(overlay, struct overlay, 0);
	__u32 i, n = next_number(in);

	for (i = 1; i < PODS - 1; i++)
		*VALUE(pod, struct pod, i) = (struct pod){ .ifindex = i, .mac = { 2, [5] = i } };
	put_target4(10, 107, 17, TARGET_POD, 1 + n % (PODS - 1));
	put_target6(address, 49, TARGET_POD, 1 + (n >> 4) % (PODS - 1));
	*o = (struct overlay){ .entry = n >> 8 & 3 ? 3 : 0,
			       .mac = { 2, [5] = 9 },
			       .translates = n >> 10 & 1 };
}

static void make_steering(struct input *in)
{
	__u8 address[16] = { 0x20, 0x01, 0x0d, 0xb8, 0xee };
	__u32 i;

	for (i = 0; i < 8; i++) {
		address[5] = i;
		put_target6(address, 48, TARGET_PASS + i % 3, i % 3 == 1 ? 1 + i % 2 : 1 + i * 2);
		put_target4(10, 100 + i, 16, TARGET_PASS + i % 4,
			    i % 4 == 1   ? 1 + i % 2
			    : i % 4 == 3 ? MOBILES - 1 - i % 2
					 : 1 + i * 2);
	}
	put_target6(gtpu6_address, 128, TARGET_PASS, 0);
	make_pods(in);
	mobile_of(in, BEHAVIOR_NONE, MOBILES - 1);
	mobile_of(in, BEHAVIOR_NONE, MOBILES - 2);
	for (i = 1; i <= 3; i++) {
		struct port_key key = { .ifindex = i,
					.outer_vlan = i == 2 ? 100 : 0,
					.inner_vlan = 0 };
		struct target to = { TARGET_POLICY, 1 + next_number(in) % (POLICIES - 1) };

		put(&target_by_port, &key, &to);
	}
	make_links();
}

static void make_settings(struct input *in)
{
	struct settings *s = &node_settings;
	__u32 n = next_number(in), i;
	struct trace_filter *f = VALUE(trace_filter, struct trace_filter, 0);

	s->locators = 1;
	s->locator[0].hi = be64(ld64(locator_prefix));
	s->locator[0].mask = 0xffffffffffff0000ull;
	s->locator[0].function_mask = 0xffff;
	s->locator[0].base = 1;
	s->domains = 1;
	s->domain[0] = (struct prefix6){ s->locator[0].hi, 0, 0xffffffffff000000ull, 0 };
	s->gtpu4_count = s->gtpu6_count = 1;
	memcpy(&s->gtpu4[0], gtpu4_address, 4);
	memcpy(&s->gtpu6[0], gtpu6_address, 16);
	s->pools4 = s->pools6 = 2;
	s->pool4[1] = (struct pool4){ 10u << 24 | 210 << 16, 0xfffffff8, PDR_SLOTS, 1 };
	s->pool6[1] = (struct pool6){ 0x20010db8de000000ull, ~7ull, PDR_SLOTS, 1 };
	s->pdr_slots = n >> 14 & 3 ? PDR_SLOTS : 0;
	s->ues = map_of(&pdr_by_ue)->count;
	s->protected_count = 1;
	s->protected[0] =
		(struct prefix6){ 0, 0xffff0ae600000000ull, ~0ull, 0xffffffffffff0000ull };
	s->pool4[0] = (struct pool4){ 10u << 24 | 200 << 16, 0xfffffff8, TEID_SLOTS, 0 };
	s->pool6[0] = (struct pool6){ 0x20010db8dd000000ull, ~7ull, TEID_SLOTS + 4, 0 };
	s->teid_slots = TEID_SLOTS;
	s->trace = n >> 8 & 3 ? 0 : 1;
	s->sids_by_prefix = map_of(&sid_by_prefix)->count;
	s->errors_per_second = n >> 10 & 3 ? 1000000 : 0;
	s->hop_limit = 64;
	s->mss_clamp = n >> 16 & 3 ? 1 : 0;
	f->drops_only = n >> 12 & 1;
	for (i = 1; i <= PORTS; i++) {
		n = next_number(in);
		VALUE(port, struct port, i)->flags =
			(n & 31 ? PORT_ATTACHED : 0) | (n & 0x700 ? 0 : PORT_EXTERNAL) |
			(n & 0x800 ? PORT_PARTIAL_CHECKSUM : 0) | (i <= 5 ? PORT_STEERED : 0);
		VALUE(port, struct port, i)->mtu = n & 0x1000 ? 0 : n >> 16;
	}
}

static void make_world(__u32 seed)
{
	struct input in = { 0, 0, seed };
	__u32 i;

	empty_maps();
	make_next_hops(&in);
	make_routes(&in);
	make_policies(&in);
	for (i = 1; i < SIDS - 10; i++)
		make_sid(&in, i);
	make_tunnels(&in);
	make_sessions(&in);
	make_steering(&in);
	make_settings(&in);
	node_settings.generation = ++worlds.made;
}

/* Anything may stand in the tables: the data path must still keep to the
 * packet. */
static void disturb_world(struct input *in)
{
	__u32 i, count = 1 + pick(in, 32);

	worlds.disturbed = 1;
	for (i = 0; i < count; i++) {
		struct native_map *m = maps[pick(in, map_count)];
		__u32 offset = take32(in) % (m->max_entries * m->value_size);

		if (m->values != (void *)VALUE(outcomes, __u8, 0))
			m->values[offset] = take8(in);
	}
}

#endif
