/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tables of one run, as the loader would write them: every behaviour,
 * policies, tunnels, steering, routes, next hops in every state. The seed
 * varies what a configuration may vary. */
#ifndef CULVERT_NATIVE_WORLD_H
#define CULVERT_NATIVE_WORLD_H

#include "sessions.h"
#include "trie.h"

/* ---- next hops ---- */

static const __u16 mtus[] = { 1500, 1500, 9000, 1280, 576, 0 };

/* Flows share others, of which some may not be ready, or are shared themselves. */
static void share_next_hops(struct input *in, __u32 index, struct next_hop *h)
{
	struct shared_hop *s = VALUE(shared_hop, struct shared_hop, index);
	__u32 i, n = next_number(in);

	memset(h, 0, sizeof(*h));
	h->flags = NEXT_HOP_SHARED;
	for (i = 0; i < FLOW_PARTS; i++)
		s->adjacency[i] = (n >> i % 4 * 8) % ADJACENCIES;
}

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
		if ((n >> 24 & 3) == 3)
			share_next_hops(in, i, h);
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
		__u32 n = next_number(in);
		struct route r = { .count = n >> 8 & 1 ? 1 : n % (MAX_NEXT_HOPS + 1) };

		r.bits = key6.prefixlen - 32; /* of IPv4 fewer, which is as good */
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
		p->down = next_number(in) % 2 ? next_number(in) : 0;
		p->count = next_number(in) % 8 ? 1 + next_number(in) % MAX_SEGMENT_LISTS : 0;
		p->first = p->count && next_number(in) % 4 == 0 ? next_number(in) % p->count : 0;
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
		st128(&m->target, without128(ld128(&m->target), tail128(m->target_length)));
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
	s->slice = n >> 11 & 1;
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

/* A list of rules for everybody and one for who has an identity: nearly all of one family. */
static void make_network_policies(struct input *in)
{
	static const __u32 bits[] = { RULE_BITS_PEER, RULE_BITS_PROTOCOL, RULE_BITS,
				      RULE_BITS - 3 };
	struct lpm6_key peer = {};
	__u32 i, one = 1;

	for (i = 0; i < 4; i++) {
		struct netpol_rule_key rule = { .prefixlen = bits[pick(in, 4)],
						.list = 2 + i % 2,
						.identity = i % 2,
						.protocol = be16(pick(in, 2) ? NH_UDP : NH_TCP),
						.port = be16(next_number(in)) };

		put(&netpol_rule, &rule, &one);
		peer.prefixlen = 32 + pick(in, 9);
		peer.table = i;
		put(&netpol_peer, &peer, &one);
	}
}

/* 10.107.0.0/17 and the like of IPv6: two pods, and one that is gone. */
static void make_pods(struct input *in)
{
	__u8 address[16] = { 0x20, 0x01, 0x0d, 0xb8, 0xee, 7 };
	struct overlay *o = VALUE(overlay, struct overlay, 0);
	__u32 i, n = next_number(in);

	for (i = 1; i < PODS - 1; i++) {
		__u32 lists = next_number(in);

		*VALUE(pod, struct pod, i) = (struct pod){ .ifindex = i,
							   .mac = { 2, [5] = i },
							   .serial = i,
							   .ingress = lists & 3,
							   .egress = lists >> 2 & 3,
							   .enforced = lists >> 4 & 1 };
		VALUE(port, struct port, i)->pod = lists >> 5 & 1 ? i : 0;
	}
	make_network_policies(in);
	put_target4(10, 107, 17, TARGET_POD, 1 + n % (PODS - 1));
	put_target6(address, 49, TARGET_POD, 1 + (n >> 4) % (PODS - 1));
	*o = (struct overlay){ .entry = n >> 8 & 3 ? 3 : 0,
			       .mac = { 2, [5] = 9 },
			       .translates = n >> 10 & 1 };
}

/* Rows of class_way by prefix, and classifiers that ports name; some ways are drops. */
static void make_classes(struct input *in)
{
	__u8 address[16] = { 0x20, 0x01, 0x0d, 0xb8, 0xee, 6 };
	__u32 i, dscp;

	for (i = 1; i < CLASSIFIERS; i++)
		for (dscp = 0; dscp < 64; dscp++)
			VALUE(classifier, struct classifier, i)->column[dscp] =
				next_number(in) % CLASS_COLUMNS;
	for (i = 0; i < WAYS; i++)
		*VALUE(class_way, struct class_way, i) =
			(struct class_way){ next_number(in) % POLICIES, next_number(in) % CLASSES };
	put_target4(10, 111, 16, TARGET_CLASSES, CLASS_COLUMNS);
	put_target6(address, 49, TARGET_CLASSES, 2 * CLASS_COLUMNS);
}

/* Of half of the ports, which then have PORT_SOURCES: by prefixes, of which one lies in
 * another, in two VLANs and without a tag. */
static void make_class_sources(struct input *in)
{
	struct lpm6_key six = { .addr.b = { 0x20, 0x01, 0x0d, 0xb8 } };
	struct lpm6_key four = { .addr.b = { 10 } };
	__u32 ifindex, i;

	for (ifindex = 2; ifindex <= PORTS; ifindex += 2)
		for (i = 0; i < 3; i++) {
			__u32 bits = 32 + (next_number(in) & 7) * 8;
			__u32 found = next_number(in) % CLASSIFIERS;

			six.table = ifindex | (i ? 100u * i : 0) << CLASS_VLAN_SHIFT;
			four.table = six.table | CLASS_IPV4;
			six.prefixlen = bits;
			four.prefixlen = bits > 64 ? 64 : bits;
			put(&class_by_source, &six, &found);
			put(&class_by_source, &four, &found);
		}
}

/* In the tables of two ports. */
static void make_own_targets(struct input *in)
{
	struct lpm6_key six = { .prefixlen = 32 + 32, .addr.b = { 0x20, 0x01, 0x0d, 0xb8 } };
	struct lpm4_key four = { .prefixlen = 32 + 8, .addr = be32(10u << 24) };
	__u32 port;

	for (port = 1; port <= 7; port += 6) {
		struct target to = { TARGET_POLICY, 1 + next_number(in) % (POLICIES - 1) };

		six.table = four.table = port;
		put(&target_by_dst6, &six, &to);
		put(&target_by_dst4, &four, &to);
	}
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
	make_own_targets(in);
	make_classes(in);
	make_class_sources(in);
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
	s->nats = n >> 18 & 1;
	s->nat[0] = (struct nat){ 10u << 24 | 210 << 16,
				  0xfffffff8,
				  10u << 24 | 211 << 16,
				  0xffffffff,
				  0,
				  1 + (n >> 19 & 7),
				  8,
				  300,
				  60,
				  7440,
				  240,
				  0 };
	s->flow_buckets = FLOW_BUCKETS;
	for (i = 0; i < FLOW_KEYS; i++)
		s->flow_key[i] = (n + i) * 0x9e3779b97f4a7c15ull;
	s->pdr_slots = n >> 14 & 3 ? PDR_SLOTS : 0;
	s->teid_fold = 3 + (n >> 11 & 1);
	s->pdr_beside = (n >> 17) % PDRS;
	s->ues = map_of(&pdr_by_ue)->count ? 32 - UE_BUCKET_BITS : 0;
	s->pool4[0] = (struct pool4){ 10u << 24 | 200 << 16, 0xfffffff8, TEID_SLOTS, 0 };
	s->pool6[0] = (struct pool6){ 0x20010db8dd000000ull, ~7ull, TEID_SLOTS + 4, 0 };
	s->teid_slots = TEID_SLOTS;
	s->trace = n >> 8 & 3 ? 0 : 1;
	s->steered = 1;
	s->sids_by_prefix = map_of(&sid_by_prefix)->count;
	s->errors_per_second = n >> 10 & 3 ? 1000000 : 0;
	s->hop_limit = 64;
	s->mss_clamp = n >> 16 & 3;
	s->flow_sampling = n >> 19 & 1 ? n >> 20 & 0xff : 0;
	s->meter_burst = n >> 18 & 1 ? 185546 : 0;
	f->drops_only = n >> 12 & 1;
	for (i = 1; i <= PORTS; i++) {
		n = next_number(in);
		VALUE(port, struct port, i)->flags = (n & 31 ? PORT_ATTACHED : 0) |
						     (n & 0x800 ? PORT_PARTIAL_CHECKSUM : 0) |
						     (i <= 5 ? PORT_STEERED : 0) |
						     (i & 1 ? i << PORT_TABLE_SHIFT : PORT_SOURCES);
		VALUE(port, struct port, i)->classifier = i % CLASSIFIERS;
		VALUE(port, struct port, i)->mtu = n & 0x1000 ? 0 : n >> 16;
		n = next_number(in);
		if (n & 1) {
			VALUE(port, struct port, i)->flags |=
				n & (PORT_ROLES | PORT_HOST_ANY | PORT_HOST_FORWARD);
			VALUE(port, struct port, i)->access = n >> 16 & 1;
		}
	}
	*VALUE(access, struct access, 1) = (struct access){
		.peers4_count = 2,
		.peers6_count = 1,
		.services_count = 1,
		.peers4 = { { 0, 0 } },
		.peers6 = { { 0, 0, 0, 0 } },
		.service = { { NH_TCP, 1, 179 } },
	};
}

static void put_reach(__u32 family, const __u8 *address, __u32 length, __u32 reach)
{
	struct lpm6_key key = { .prefixlen = 32 + length, .table = family };

	memcpy(&key.addr, address, 16);
	put(&ue_reach, &key, &reach);
}

/* What UEs must not reach, and of that what they may. */
static void make_reach(void)
{
	static const __u8 four[16] = { 10, 120 };
	static const __u8 six[16] = { 0x20, 0x01, 0x0d, 0xb8, 0xee, 4 };

	put_reach(4, four, 13, REACH_CLOSED);
	put_reach(4, four, 17, REACH_OPEN);
	put_reach(6, six, 46, REACH_CLOSED);
	put_reach(6, six, 64, REACH_OPEN);
}

/* Each bucket is somewhere, and some are on their way elsewhere. */
static void make_spread(struct input *in)
{
	static const __u32 places[] = { 0,           1,           SPREAD_SECOND, SPREAD_SECOND + 1,
					SPREAD_HERE, SPREAD_SPLIT };
	struct spread *s = VALUE(spread_settings, struct spread, 0);
	__u32 i;

	s->by = pick(in, 3);
	s->room = pick(in, 8);
	for (i = 0; i < SPREAD_BUCKETS + SPREAD_FLOW_BUCKETS; i++) {
		struct spread_bucket *b = VALUE(spread_bucket, struct spread_bucket, i);
		__u32 n = next_number(in), split = i < SPREAD_BUCKETS;

		b->word = (__u64)places[n % (5 + split)] << SPREAD_PLACE_SHIFT;
		b->next = places[(n >> 8) % (5 + split)];
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
	make_reach();
	make_settings(&in);
	make_spread(&in);
	make_trie(&in);
	node_settings.generation = ++worlds.made;
}

/* Anything may stand in the tables: the data path must still keep to the
 * packet. The kernel alone writes locks. */
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
	if (pick(in, 2))
		disturb_trie(in);
	for (i = 1; i <= PORTS; i++) /* bits of the path alone */
		VALUE(port, struct port, i)->flags &= ~(EXPRESS_TAGGED | EXPRESS_PADDED);
	for (i = 0; i < FLOW_BUCKETS; i++)
		VALUE(netpol_flow, struct pod_flow_bucket, i)->lock.val = 0;
}

#endif
