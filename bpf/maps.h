/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Every map, in the order in which a packet meets them. max_entries of those
 * that grow with the configuration are set by the loader. */
#ifndef CULVERT_MAPS_H
#define CULVERT_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "def/class.h"
#include "def/n4.h"
#include "def/spread.h"
#include "def/tables.h"
#include "def/reason.h"

#define MAX_PORTS 65536 /* ifindex < MAX_PORTS */

#define map_flags_of_BPF_MAP_TYPE_ARRAY 0
#define map_flags_of_BPF_MAP_TYPE_PERCPU_ARRAY 0
#define map_flags_of_BPF_MAP_TYPE_HASH BPF_F_NO_PREALLOC
#define map_flags_of_BPF_MAP_TYPE_LRU_HASH 0
#define map_flags_of_BPF_MAP_TYPE_CPUMAP 0
#define map_flags_of_BPF_MAP_TYPE_LPM_TRIE BPF_F_NO_PREALLOC

#define MAP(name, map_type, key_type, value_type, entries)  \
	struct {                                            \
		__uint(type, map_type);                     \
		__type(key, key_type);                      \
		__type(value, value_type);                  \
		__uint(max_entries, entries);               \
		__uint(map_flags, map_flags_of_##map_type); \
	} name SEC(".maps")

/* what every packet needs to know: a look-up less than a map takes */
__hidden struct settings node_settings SEC(".data.settings");
/* what may enter by an interface, by ifindex */
MAP(port, BPF_MAP_TYPE_ARRAY, __u32, struct port, MAX_PORTS);
/* who may send GTP-U by a port, and what of this host it reaches */
MAP(access, BPF_MAP_TYPE_ARRAY, __u32, struct access, MAX_ACCESS);
/* interface steering, by port and VLAN tags */
MAP(target_by_port, BPF_MAP_TYPE_HASH, struct port_key, struct target, 4096);
/* SIDs that no locator finds by index */
MAP(sid_by_prefix, BPF_MAP_TYPE_LPM_TRIE, struct sid_key, __u32, 65536);
/* local SIDs, and their counters */
MAP(local_sid, BPF_MAP_TYPE_ARRAY, __u32, struct local_sid, 65536);
MAP(sid_counter, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct counter, 65536);
/* parameters of the mobile behaviours */
MAP(mobile, BPF_MAP_TYPE_ARRAY, __u32, struct mobile, 4096);
/* End.Limit's buckets */
MAP(limit_by_group, BPF_MAP_TYPE_LRU_HASH, struct limit_key, struct limit, 65536);
/* steering by destination: own addresses, policies, tunnels, H.M.GTP4.D */
MAP(target_by_dst4, BPF_MAP_TYPE_LPM_TRIE, struct lpm4_key, struct target, 65536);
MAP(target_by_dst6, BPF_MAP_TYPE_LPM_TRIE, struct lpm6_key, struct target, 65536);
/* traffic classes: of a source behind a port, of a DSCP, of a destination, and what they
 * carried */
MAP(class_by_source, BPF_MAP_TYPE_LPM_TRIE, struct lpm6_key, __u32, 65536);
MAP(classifier, BPF_MAP_TYPE_ARRAY, __u32, struct classifier, MAX_CLASSIFIERS);
MAP(class_way, BPF_MAP_TYPE_ARRAY, __u32, struct class_way, CLASS_ROWS *CLASS_COLUMNS);
MAP(class_counter, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct counter, MAX_CLASSES);
/* this node's pods, and how its own stack meets them */
MAP(pod, BPF_MAP_TYPE_ARRAY, __u32, struct pod, MAX_PODS);
MAP(overlay, BPF_MAP_TYPE_ARRAY, __u32, struct overlay, 1);
/* flows of pods that had packets lately */
MAP(flow_cache, BPF_MAP_TYPE_ARRAY, __u32, struct cached_flows, FLOW_WAYS / FLOW_CACHE_WAYS);
/* NetworkPolicies: who has an address, by tenant, family and daemon; what rules
 * allow whom; flows of pods; NETPOL_COUNTS of each pod */
MAP(netpol_peer, BPF_MAP_TYPE_LPM_TRIE, struct lpm6_key, __u32, 262144);
MAP(netpol_rule, BPF_MAP_TYPE_LPM_TRIE, struct netpol_rule_key, __u32, 1048576);
MAP(netpol_flow, BPF_MAP_TYPE_ARRAY, __u32, struct pod_flow_bucket, 1);
MAP(netpol_counter, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct counter, MAX_PODS *NETPOL_COUNTS);
/* records of pods' flows: FLOW_DIRECTIONS of each pod */
MAP(flow_budget, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct flow_budget, MAX_PODS *FLOW_DIRECTIONS);
/* how many packets more have no record */
MAP(flow_skip, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, __u32, 1);
/* the last lookups in the tries of destinations and routes */
MAP(lookup_cache, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct cached, CACHE_SLOTS);
/* at the same index, the route of a slot that has several next hops */
MAP(cached_route, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct route, CACHE_SLOTS);
/* GTP-U tunnels; those whose TEID is not an index are found by a hash */
MAP(tunnel, BPF_MAP_TYPE_ARRAY, __u32, struct tunnel, 65536);
MAP(tunnel_by_teid, BPF_MAP_TYPE_HASH, __u32, __u32, 65536);
/* the sessions' rules, what they refused, and quotas that they share; rules that neither
 * TEID nor pool leads to by itself are found by a hash */
MAP(pdr, BPF_MAP_TYPE_ARRAY, __u32, struct pdr, 1);
MAP(refused, BPF_MAP_TYPE_ARRAY, __u32, struct refused, 1);
MAP(quota, BPF_MAP_TYPE_ARRAY, __u32, struct quota, 1);
MAP(pdr_by_teid, BPF_MAP_TYPE_HASH, __u32, __u32, 1);
MAP(pdr_by_ue, BPF_MAP_TYPE_HASH, struct in6, __u32, 1);
MAP(ue_bucket, BPF_MAP_TYPE_ARRAY, __u32, struct ue_bucket, 1);
/* external ports of UEs behind NAT44 */
MAP(nat_bucket, BPF_MAP_TYPE_ARRAY, __u32, struct nat_slots, 1);
/* what UEs must not reach, and may all the same: peers, SMFs, what is configured */
MAP(ue_reach, BPF_MAP_TYPE_LPM_TRIE, struct lpm6_key, __u32, 1);
/* SDF filters, in runs that rules name */
MAP(filter, BPF_MAP_TYPE_ARRAY, __u32, struct filter, 1);
MAP(frame_filter, BPF_MAP_TYPE_ARRAY, __u32, struct frame_filter, 1);
/* MAC addresses of Ethernet sessions */
MAP(station, BPF_MAP_TYPE_LRU_HASH, struct station_key, struct station, 1);
/* where rules send, and the rates that they share */
MAP(forwarding, BPF_MAP_TYPE_ARRAY, __u32, struct forwarding, 1);
MAP(meter, BPF_MAP_TYPE_ARRAY, __u32, struct meter, 1);
/* what slices carry and may: 2 * slice, + 1 towards the UE */
MAP(slice_counter, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct counter, 1);
MAP(slice_meter, BPF_MAP_TYPE_ARRAY, __u32, struct meter, 1);
/* outer source addresses of tunnels; IPv4-mapped for IPv4 */
MAP(source, BPF_MAP_TYPE_ARRAY, __u32, struct in6, 64);
/* SR policies, their segment lists, and what each list carried */
MAP(sr_policy, BPF_MAP_TYPE_ARRAY, __u32, struct sr_policy, 4096);
MAP(segment_list, BPF_MAP_TYPE_ARRAY, __u32, struct segment_list, 16384);
MAP(list_counter, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct counter, 16384);
/* the kernel's routes, by table */
MAP(route4, BPF_MAP_TYPE_LPM_TRIE, struct lpm4_key, struct route, 65536);
MAP(route6, BPF_MAP_TYPE_LPM_TRIE, struct lpm6_key, struct route, 65536);
/* what routes, steering by destination and ue_reach say, for a walk of a few loads */
MAP(trie_root, BPF_MAP_TYPE_ARRAY, __u32, struct trie_root, TRIE_ROOTS);
MAP(trie_block, BPF_MAP_TYPE_ARRAY, __u32, struct trie_block, 1);
/* next hops: device and ready-made Ethernet header */
MAP(adjacency, BPF_MAP_TYPE_ARRAY, __u32, struct adjacency, 4096);
/* at the same index, the next hops that flows share */
MAP(shared_hop, BPF_MAP_TYPE_ARRAY, __u32, struct shared_hop, 4096);
/* how journeys ended, by enum reason */
MAP(outcomes, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct counter, REASON_COUNT);
/* what is left of this second's ICMP errors, and of its floods */
MAP(errors_left, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct errors_left, 3);
/* one entry: which packets `culvert trace` wants */
MAP(trace_filter, BPF_MAP_TYPE_ARRAY, __u32, struct trace_filter, 1);

/* a packet's state on the whole journey, too large for the stack beside all
 * that is called */
MAP(journey_state, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct journey_state, 1);

/* headers on their way past an SRH that is removed */
MAP(move_scratch, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct move_buffer, 1);

/* the record of a traced packet, while it travels */
MAP(trace_scratch, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct trace_event, 1);

/* devices that frames leave by, by ifindex */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, MAX_PORTS);
} device SEC(".maps");

/* frames that such a device did not send, by ifindex */
MAP(lost_by_device, BPF_MAP_TYPE_ARRAY, __u32, struct lost, MAX_PORTS);

/* packets over CPUs: how, in which buckets, into which queues; the loader says how many
 * CPUs there are */
MAP(spread_settings, BPF_MAP_TYPE_ARRAY, __u32, struct spread, 1);
MAP(spread_bucket, BPF_MAP_TYPE_ARRAY, __u32, struct spread_bucket,
    SPREAD_BUCKETS + SPREAD_FLOW_BUCKETS);
MAP(spread_queue, BPF_MAP_TYPE_ARRAY, __u32, struct spread_queue, 1);
MAP(spread_cpu, BPF_MAP_TYPE_CPUMAP, __u32, struct bpf_cpumap_val, 1);
MAP(spread_cpu2, BPF_MAP_TYPE_CPUMAP, __u32, struct bpf_cpumap_val, 1);

/* PFCP that the data path answers: what it needs to know, who sends, sessions, what they
 * may be forwarded by, what changed (a bit for each entry of n4_session), and counts */
MAP(n4_state, BPF_MAP_TYPE_ARRAY, __u32, struct n4_state, 1);
MAP(n4_peer, BPF_MAP_TYPE_HASH, struct in6, struct n4_peer, 1024);
MAP(n4_session, BPF_MAP_TYPE_ARRAY, __u32, struct n4_session, 1);
MAP(n4_forwarding, BPF_MAP_TYPE_HASH, struct n4_forwarding_key, __u32, 1);
MAP(n4_dirty, BPF_MAP_TYPE_ARRAY, __u32, __u64, 1);
MAP(n4_count, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, __u64, N4_COUNTS);

/* End Markers that the daemon sends: struct n4_event */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} n4_events SEC(".maps");

/* programs that others end in, by enum program */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 3);
} next_program SEC(".maps");

#define SLOW_PATH_OCTETS (1 << 23)

/* packets for the daemon: struct punt */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SLOW_PATH_OCTETS);
} slow_path SEC(".maps");

/* what the daemon is told of rules: struct session_event */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} session_events SEC(".maps");

/* records for `culvert trace`: struct trace_event */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} trace_events SEC(".maps");

/* flows of pods: struct flow_record */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} flow_records SEC(".maps");

/* What the indices above mean, for a daemon that starts again; the data path
 * never looks here. kind: 1 policy, 2 segment list, 3 mobile, 4 tunnel,
 * 5 adjacency, 6 source, 7 traffic class. */
struct name_key {
	__u32 kind;
	__u32 index;
};
struct name {
	char text[128];
};
MAP(name_by_index, BPF_MAP_TYPE_HASH, struct name_key, struct name, 262144);

#endif
