/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The pinned tables of a daemon, in user space. How a look-up is answered:
 *  - arrays that the loader made mappable are mapped: they are the daemon's own, and
 *    volumes, quotas and meters are as exact as in the kernel;
 *  - other arrays are copied by the entry, for at most 10 ms and one generation;
 *  - hashes and tries are asked by a system call; what the data path remembers of them
 *    (lookup_cache) it remembers here, too;
 *  - tables of each CPU are each worker's. Of these, counters are added to the pinned
 *    ones, of the CPU that the worker runs on (calls.h). */
#ifndef CULVERT_SOFT_TABLES_H
#define CULVERT_SOFT_TABLES_H

#include "system.h"

enum reach_by { BY_SHARED, BY_COPY, BY_CALL, BY_WORKER, BY_COUNTING, BY_OWN_HASH };

/* The first member of a map's variable points at this one. */
struct soft_map {
	const char *name;
	int fd;
	__u32 number; /* in struct worker */
	__u32 key_size, value_size, max_entries, stride;
	enum reach_by by;
	__u8 *shared;
};

#define MAX_MAPS 64
static struct soft_map maps[MAX_MAPS];
static __u32 map_count;

/* A worker's part of a map. */
struct own {
	__u8 *values;
	__u32 *epoch; /* BY_COPY: of each entry */
	/* BY_COUNTING: which entries were looked up since they were added to the pinned
	 * ones */
	__u32 *touched;
	__u32 touched_count;
	__u8 *is_touched;
};

#define ANSWERS 64       /* that a packet may hold at a time */
#define ANSWER_SIZE 128
#define GROUPS 4096      /* of BY_OWN_HASH */
#define EPOCH_NS 10000000ull

/* What a worker did. */
struct result {
	__u64 received, sent, passed, dropped;
	__u64 no_room;       /* in the queue of the interface that they were to leave by */
	__u64 not_passed;    /* the kernel did not take them */
	__u64 not_handed_up; /* nor did the daemon's queue */
};

struct worker {
	struct result result;
	struct own own[MAX_MAPS];
	__u32 epoch, generation; /* of what was copied */
	__u64 epoch_ends;
	__u8 answer[ANSWERS][ANSWER_SIZE];
	__u32 answers;
	/* the station that the packet met, as it was, and where its copy is */
	struct station_key station_key;
	struct station station_was, *station_now;
	/* the packet */
	__u64 hard_start, hard_end;
	__u32 egress; /* of the last redirect */
	struct punt record;
};

static __thread struct worker *self;

static struct soft_map *map_of(void *map)
{
	return *(struct soft_map **)map;
}

/* ---- at the start ---- */

static void *reserve_memory(size_t size)
{
	void *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		       -1, 0);

	must(p != MAP_FAILED, "memory of %zu octets", size);
	return p;
}

static enum reach_by how(const struct bpf_map_info *info)
{
	switch (info->type) {
	case BPF_MAP_TYPE_ARRAY:
		return info->map_flags & BPF_F_MMAPABLE ? BY_SHARED : BY_COPY;
	case BPF_MAP_TYPE_PERCPU_ARRAY:
		return BY_WORKER;
	case BPF_MAP_TYPE_DEVMAP:
		return BY_COPY;
	}
	return BY_CALL;
}

static struct soft_map *open_map(const char *pins, const char *name, __u32 key_size,
				 __u32 value_size)
{
	struct soft_map *m = &maps[map_count];
	struct bpf_map_info info = {};
	char path[4096];

	must(map_count < MAX_MAPS, "too many tables");
	snprintf(path, sizeof(path), "%s/maps/%s", pins, name);
	m->fd = bpf_object_get(path);
	must(m->fd >= 0, "open %s", path);
	must(!bpf_object_info(m->fd, &info, sizeof(info)), "ask about %s", path);
	errno = 0;
	must(info.key_size == key_size && info.value_size == value_size,
	     "%s is of another build: keys of %u octets and values of %u, want %u and %u", path,
	     info.key_size, info.value_size, key_size, value_size);
	m->name = name;
	m->number = map_count++;
	m->key_size = key_size;
	m->value_size = value_size;
	m->max_entries = info.max_entries;
	m->stride = (value_size + 7) & ~7u;
	m->by = how(&info);
	if (m->by == BY_SHARED) {
		size_t size = ((size_t)m->stride * m->max_entries + 4095) & ~4095ull;

		m->shared = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
		must(m->shared != MAP_FAILED, "map %s", path);
	}
	return m;
}

#define OPEN_MAP(table)                \
	(*(struct soft_map **)&table = \
		 open_map(pins, #table, sizeof(*table.key), sizeof(*table.value)))

static void open_maps(const char *pins)
{
	settings_table = (void *)open_map(pins, "settings", 4, sizeof(struct settings))->shared;
	must(settings_table, "settings are not mapped");
	OPEN_MAP(port);
	OPEN_MAP(access);
	OPEN_MAP(target_by_port);
	OPEN_MAP(sid_by_prefix);
	OPEN_MAP(local_sid);
	OPEN_MAP(sid_counter)->by = BY_COUNTING;
	OPEN_MAP(mobile);
	OPEN_MAP(limit_by_group)->by = BY_OWN_HASH;
	OPEN_MAP(target_by_dst4);
	OPEN_MAP(target_by_dst6);
	OPEN_MAP(class_by_source);
	OPEN_MAP(classifier);
	OPEN_MAP(class_way);
	OPEN_MAP(class_counter)->by = BY_COUNTING;
	OPEN_MAP(pod);
	OPEN_MAP(overlay);
	OPEN_MAP(lookup_cache);
	OPEN_MAP(cached_route);
	OPEN_MAP(trie_root);
	OPEN_MAP(trie_block);
	OPEN_MAP(tunnel);
	OPEN_MAP(tunnel_by_teid);
	OPEN_MAP(pdr);
	OPEN_MAP(refused);
	OPEN_MAP(quota);
	OPEN_MAP(pdr_by_teid);
	OPEN_MAP(pdr_by_ue);
	OPEN_MAP(ue_bucket);
	OPEN_MAP(nat_bucket);
	OPEN_MAP(ue_reach);
	OPEN_MAP(filter);
	OPEN_MAP(frame_filter);
	OPEN_MAP(station);
	OPEN_MAP(forwarding);
	OPEN_MAP(meter);
	OPEN_MAP(slice_counter)->by = BY_COUNTING;
	OPEN_MAP(slice_meter);
	OPEN_MAP(source);
	OPEN_MAP(sr_policy);
	OPEN_MAP(segment_list);
	OPEN_MAP(list_counter)->by = BY_COUNTING;
	OPEN_MAP(route4);
	OPEN_MAP(route6);
	OPEN_MAP(adjacency);
	OPEN_MAP(shared_hop);
	OPEN_MAP(outcomes)->by = BY_COUNTING;
	OPEN_MAP(errors_left);
	OPEN_MAP(trace_filter);
	OPEN_MAP(journey_state);
	OPEN_MAP(move_scratch);
	OPEN_MAP(trace_scratch);
	OPEN_MAP(device);
}

static struct worker *new_worker(void)
{
	struct worker *w = reserve_memory(sizeof(*w));
	__u32 i;

	w->epoch = 1;
	for (i = 0; i < map_count; i++) {
		struct soft_map *m = &maps[i];
		struct own *o = &w->own[i];

		if (m->by == BY_SHARED || m->by == BY_CALL)
			continue;
		if (m->by == BY_OWN_HASH) {
			o->values = reserve_memory((size_t)GROUPS * (m->key_size + m->stride));
			continue;
		}
		o->values = reserve_memory((size_t)m->max_entries * m->stride);
		if (m->by == BY_COPY)
			o->epoch = reserve_memory(m->max_entries * sizeof(__u32));
		if (m->by != BY_COUNTING)
			continue;
		o->touched = reserve_memory(m->max_entries * sizeof(__u32));
		o->is_touched = reserve_memory(m->max_entries);
	}
	return w;
}

/* ---- look-ups ---- */

/* Before packets are handled that were received by now. */
static void begin_batch(__u64 now)
{
	__u32 generation = cache_generation(settings_table);

	if (generation == self->generation && now < self->epoch_ends)
		return;
	self->generation = generation;
	self->epoch_ends = now + EPOCH_NS;
	self->epoch++;
}

static void *look_up_copy(struct soft_map *m, struct own *o, __u32 i)
{
	void *value = o->values + (size_t)i * m->stride;

	if (o->epoch[i] == self->epoch)
		return value;
	if (bpf_look_up(m->fd, &i, value))
		memset(value, 0, m->value_size); /* of a devmap: no device */
	o->epoch[i] = self->epoch;
	return value;
}

static void *look_up_counter(struct own *o, struct soft_map *m, __u32 i)
{
	if (!o->is_touched[i]) {
		o->is_touched[i] = 1;
		o->touched[o->touched_count++] = i;
	}
	return o->values + (size_t)i * m->stride;
}

/* In memory of the worker's, which holds until as many others were asked for. */
static void *look_up_by_call(struct soft_map *m, const void *key)
{
	void *value = self->answer[self->answers++ % ANSWERS];

	if (bpf_look_up(m->fd, key, value))
		return 0;
	if (m == map_of(&station)) {
		memcpy(&self->station_key, key, sizeof(self->station_key));
		memcpy(&self->station_was, value, sizeof(self->station_was));
		self->station_now = value;
	}
	return value;
}

/* Where the key is, or would be. */
static __u8 *own_hash_place(struct soft_map *m, const void *key)
{
	__u64 h = 0;
	__u32 i;

	for (i = 0; i < m->key_size; i += 4)
		h = (h ^ ld32(key + i)) * 0x9E3779B97F4A7C15ull;
	return self->own[m->number].values + (h >> 32) % GROUPS * (m->key_size + m->stride);
}

static void *look_up_own_hash(struct soft_map *m, const void *key)
{
	__u8 *at = own_hash_place(m, key);

	return memcmp(at + m->stride, key, m->key_size) ? 0 : at;
}

static inline void *look_up(void *map, const void *key)
{
	struct soft_map *m = map_of(map);
	__u32 i;

	if (m->by == BY_CALL)
		return look_up_by_call(m, key);
	if (m->by == BY_OWN_HASH)
		return look_up_own_hash(m, key);
	i = *(const __u32 *)key;
	if (i >= m->max_entries)
		return 0;
	if (m->by == BY_SHARED)
		return m->shared + (size_t)i * m->stride;
	if (m->by == BY_COPY)
		return look_up_copy(m, &self->own[m->number], i);
	if (m->by == BY_COUNTING)
		return look_up_counter(&self->own[m->number], m, i);
	return self->own[m->number].values + (size_t)i * m->stride;
}

/* What a frame did to the copy of its station. */
static void write_station(void)
{
	if (self->station_now && self->station_now->heard != self->station_was.heard)
		bpf_store(map_of(&station)->fd, &self->station_key, self->station_now, BPF_EXIST);
	self->station_now = 0;
}

#endif
