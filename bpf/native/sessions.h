/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sessions of the user plane in a run: rules, filters, meters, forwardings, and
 * Ethernet sessions with their stations and links. */
#ifndef CULVERT_NATIVE_SESSIONS_H
#define CULVERT_NATIVE_SESSIONS_H

#include "tables.h"

/* One of two groups of UEs that may reach each other, or none. */
#define UE_GROUP(n)                                                                      \
	((n) & 4 ? 0                                                                     \
		 : (UE_TO_UE_ROUTE + ((n) & 1ull)) << UE_GROUP_SHIFT | ((n) >> 1 & 1ull) \
									       << UE_SLICE_SHIFT)

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
		f->ue_group = UE_GROUP(n >> 23);
		f->args_at = n >> 12 & 1 ? 64 : 0;
		f->tos = n >> 13;
		f->tos_mask = n >> 21 & 1 ? 0xfc : 0;
		any_sid_address(in, &f->remote);
		memcpy(&f->source, gtpu6_address, 16);
		f->index = f->kind == FORWARD_TABLE    ? (n >> 22 & 1 ? TABLE : MAIN_TABLE)
			   : f->kind == FORWARD_LINK   ? (n >> 22 & 1 ? LINK_VLAN : LINK)
			   : f->kind == FORWARD_POLICY ? (n >> 22) % 3
						       : 1 + (n >> 22 & 1);
		f->class = f->kind == FORWARD_POLICY ? (n >> 26) % CLASSES : 0;
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

/* What leads to a rule at the SIDs of a slice, in one of all ways. */
static void put_at_sid(__u32 i)
{
	struct in6 key = {};
	__u32 what = AT_SID_TEID + i % 5;

	if (what == AT_SID_TEID) {
		key.b[3] = i;
	} else if (what == AT_SID_SOURCE4 || what == AT_SID_DESTINATION4) {
		key.b[0] = 10;
		key.b[1] = 210;
		key.b[3] = i & 7;
	} else {
		key.b[0] = 0x20;
		key.b[1] = 1;
		key.b[2] = 0x0d;
		key.b[3] = 0xb8;
		key.b[4] = 0xde;
		key.b[7] = i & 7;
	}
	key.b[8] = AT_SID;
	key.b[9] = what;
	key.b[15] = i & 1;
	put(&pdr_by_ue, &key, &i);
}

/* The first UE of a bucket has a slot; the others are in pdr_by_ue alone. */
static void put_in_bucket(__u32 address, __u32 index)
{
	struct ue_bucket *b = VALUE(ue_bucket, struct ue_bucket,
				    address * (__u32)UE_HASH >> (32 - UE_BUCKET_BITS));

	if (b->slot[0])
		b->more++;
	else
		b->slot[0] = (__u64)address << 32 | index;
}

/* Rules of all sessions share a few quotas, as no daemon has it: their own session's and others'. */
static void make_quotas(struct input *in)
{
	__u32 i, k, n;

	for (i = 1; i < QUOTAS; i++) {
		struct quota *q = VALUE(quota, struct quota, i);

		for (k = 0; k < QUOTA_RULES; k++)
			q->rule[k] = next_number(in) % PDRS;
		for (k = 0; k < QUOTA_LIMITS; k++) {
			n = next_number(in);
			q->limit[k] = n & 1 ? 0
					    : (n & 2 ? 0 : 1ull << 46) | (__u64)(n >> 8 & 0x1ff)
										 << QUOTA_OCTETS;
		}
	}
}

/* Quotas are out of reach or used up, and rates so high that the time between
 * two runs does not matter: they must come to the same. */
static void make_sessions(struct input *in)
{
	__u32 i, n, teid;
	struct in6 ue = {};

	make_forwardings(in);
	make_filters(in);
	make_quotas(in);
	for (i = 1; i < PDRS; i++) {
		struct pdr *r = VALUE(pdr, struct pdr, i);

		n = next_number(in);
		r->volume = volume_of(volume_start(i));
		r->action = n & 8 ? PDR_FORWARD : (n & 7) % (PDR_FORWARD + 1);
		r->flags = (n >> 4 & (PDR_SOURCE4 | PDR_SOURCE6 | PDR_DUPLICATE | PDR_METERS |
				      PDR_DOWNLINK)) |
			   (n >> 12) % 3 << PDR_CONTAINER_SHIFT |
			   (i < PDR_SLOTS && n >> 15 & 3 ? PDR_BY_TEID : 0);
		r->forwarding = r->action == PDR_FILTERS ? n >> 20 & 7 : (n >> 20) % FORWARDINGS;
		r->more = r->action == PDR_FILTERS ? (n >> 16) % FILTERS : (n >> 16) % METERS;
		r->teid = next_number(in);
		if (r->action == PDR_FILTERS) /* PDR_STRAIGHT is PDR_DUPLICATE */
			r->teid = n & 1u << 31 ? r->teid | STRAIGHT_BESIDE
					       : (r->teid & ~STRAIGHT_INDEX) |
							 (r->teid & STRAIGHT_INDEX) % PDRS;
		r->qfi = n >> 24 & 0x7f;
		r->generation = n >> 18;
		r->rate = n >> 9 & 1 ? 0xffffffff : 0;
		r->stop =
			n >> 27 & 3 ? 0 : usage_units(&r->volume) + (n >> 29 & 1 ? 0 : USAGE_AHEAD);
		r->notify = n >> 30 & 1 ? usage_units(&r->volume) + 1 : 0;
		VALUE(refused, struct refused, i)->volume = volume_of(volume_start(i));
		VALUE(refused, struct refused, i)->notify =
			n >> 28 & 1 ? usage_units(&r->volume) : 0;
		VALUE(refused, struct refused, i)->quota = (n >> 21) % QUOTAS;
		r->source4 = 10 + (n >> 26 & 1);
		r->source6 = UE_GROUP(n >> 8);
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
		put_in_bucket(ld32(ue.b + 12), i);
	}
	for (i = 1; i < PDR_SLOTS; i++)
		put_at_sid(i);
	put_target4(10, 221, 16, TARGET_PDR, PDRS - 2);
}

#endif
