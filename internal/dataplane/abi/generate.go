package abi

// The include directories are those of Debian and Ubuntu, where asm/types.h
// depends on the architecture; the one that is not there is ignored. The
// compiler must not make one block of what packets of several kinds have in common
// (simplifycfg-sink-common): that takes more of the stack, and makes more states for the
// verifier.

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -type apart -type at_sid -type behavior -type class_table -type container -type filter_flags -type flavor -type flow_answer_at -type flow_kind -type flow_limits -type flow_record -type flow_where -type forwarding_kind -type frame_filter_flags -type given -type locator -type meter_unit -type mss_clamp -type next_hop -type next_hop_flags -type nat -type nat_limits -type nat_protocol -type direction -type netpol_count -type cached_flow -type pod_flow -type netpol_limits -type pdr_action -type pdr_flags -type pdu_type -type pool4 -type pool6 -type port_flags -type prefix4 -type prefix6 -type punt_kind -type reach -type reason -type settings -type quota_limits -type service -type session_event -type session_event_kind -type sid_flags -type n4_rule -type n4_fate -type n4_event -type n4_limits -type program -type spread_by -type spread_limits -type spread_place -type straight -type target_kind -type tunnel_action -type trie_leaf -type trie_table -type ue_buckets -type ue_to_ue -type punt -type trace_event -type volume -type vouches -type weighted_list Datapath ../../../bpf/datapath.c -- -O3 -mllvm -simplifycfg-sink-common=false -g -Wall -Werror -mcpu=v3 -I../../../bpf -include def/btf.h -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu

// bpf2go puts its stem before each name: abi.LocalSid reads better than
// abi.DatapathLocalSid.

//go:generate sed -i -e "s/\\b[Dd]atapath\\([A-Z]\\)/\\1/g" -e "s/Load[D]atapath/Load/" -e "s/_DatapathBytes/object/" datapath_bpfel.go
