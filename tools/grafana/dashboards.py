"""Writes the Grafana dashboards of Culvert as JSON files.

    dashboards.py DIRECTORY

Each panel is one line of a table below: its title, what it shows, its unit and its queries.
"""

import json
import pathlib
import sys

from grafana_foundation_sdk.builders import common as looks
from grafana_foundation_sdk.builders import dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model

SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
# Every series is of the chosen instances.
HERE = 'job=~"$job",instance=~"$instance"'

PACKETS, BITS, BYTES, COUNT, SECONDS, RATIO = "pps", "bps", "bytes", "short", "s", "percentunit"


def rate(metric, by, labels="", times=1):
    """A counter's increase per second, summed over what `by` does not name."""
    factor = f"{times} * " if times != 1 else ""
    selector = HERE + ("," + labels if labels else "")
    return f"{factor}sum by ({by}) (rate({metric}{{{selector}}}[$__rate_interval]))"


def total(metric, by, labels=""):
    selector = HERE + ("," + labels if labels else "")
    return f"sum by ({by}) ({metric}{{{selector}}})"


def largest(expression, by):
    return f"max by ({by}) ({expression})"


def full():
    used, room = f"culvert_table_entries{{{HERE}}}", f"culvert_table_capacity_entries{{{HERE}}}"
    return f"topk(10, max by (table) ({used} / ({room} > 0)))"


# Rows of panels. A panel: (title, description, unit, [(query, legend), ...]). Panels that are
# one figure stand in the rows named STAT.
STAT = "At a glance"

HEALTH = [
    ("Instances", "Daemons that Prometheus reaches.", COUNT, [(f"sum(up{{{HERE}}})", "up")]),
    ("Interfaces without program", "An interface of the configuration that the data path is not attached to.", COUNT,
     [(f"count(culvert_interface_attached{{{HERE}}} == 0) or vector(0)", "not attached")]),
    ("Not applied", "What the daemon could not bring to the desired state, and tries again.", COUNT,
     [(f"sum(culvert_reconcile_failures{{{HERE}}})", "failures")]),
]

DATA_PATH = ("Data path", [
    ("Packets by outcome", "How the journey of packets ended. Passed packets went to the kernel.", PACKETS,
     [(rate("culvert_packets_total", "outcome"), "{{outcome}}")]),
    ("Bits received", "Of all packets, as received.", BITS, [(rate("culvert_bytes_total", "instance", times=8), "{{instance}}")]),
    ("Drops by reason", "culvert drops and culvert trace show single packets.", PACKETS,
     [(rate("culvert_drops_total", "reason") + " > 0", "{{reason}}")]),
    ("Frames that interfaces did not send", "Forwarded to an interface that had lost its carrier, was down, or had no room.", PACKETS,
     [(rate("culvert_interface_lost_packets_total", "interface"), "{{interface}}")]),
    ("Next hops", "Next hops that are not ready lose packets; those of the kernel are slower.", COUNT,
     [(total("culvert_adjacencies", "state"), "{{state}}")]),
    ("Fullest tables", "A full table refuses new entries: raise its limit.", RATIO, [(full(), "{{table}}")]),
    ("Slow path", "Packets that the daemon handles: fragments, errors, packets of idle UEs.", PACKETS,
     [(rate("culvert_slow_path_events_total", "event"), "{{event}}")]),
])

PROCESS = ("Daemon", [
    ("CPU", "Of the daemon's process; the data path runs in the kernel.", RATIO,
     [(f"sum by (instance) (rate(process_cpu_seconds_total{{{HERE}}}[$__rate_interval]))", "{{instance}}")]),
    ("Memory", "Resident size of the daemon's process.", BYTES, [(total("process_resident_memory_bytes", "instance"), "{{instance}}")]),
])

SLICES = ("Slices", [
    ("Uplink", "T-PDUs from UEs, by slice.", BITS, [(rate("culvert_slice_bytes_total", "slice", 'direction="uplink",slice=~"$slice"', 8), "{{slice}}")]),
    ("Downlink", "T-PDUs to UEs, by slice.", BITS, [(rate("culvert_slice_bytes_total", "slice", 'direction="downlink",slice=~"$slice"', 8), "{{slice}}")]),
    ("Packets", "T-PDUs by slice and direction.", PACKETS,
     [(rate("culvert_slice_packets_total", "slice, direction", 'slice=~"$slice"'), "{{slice}} {{direction}}")]),
    ("Mean size", "Octets of a T-PDU, by slice and direction.", BYTES,
     [(rate("culvert_slice_bytes_total", "slice, direction", 'slice=~"$slice"') + " / (" +
       rate("culvert_slice_packets_total", "slice, direction", 'slice=~"$slice"') + " > 0)", "{{slice}} {{direction}}")]),
    ("Sessions", "PFCP sessions by slice.", COUNT, [(total("culvert_slice_sessions", "slice", 'slice=~"$slice"'), "{{slice}}")]),
    ("Imported routes", "Routes of a slice's L3VPN.", COUNT, [(total("culvert_slice_imported_routes", "slice", 'slice=~"$slice"'), "{{slice}}")]),
])

SPREAD = ("Packets over CPUs", [
    ("Packets by CPU", "That a CPU handled for others (spread).", PACKETS, [(rate("culvert_spread_packets_total", "instance, cpu"), "{{instance}} CPU {{cpu}}")]),
    ("Load by CPU", "Busy part of a CPU's time, whoever used it.", RATIO,
     [(f"max by (instance, cpu) (culvert_spread_load{{{HERE}}})", "{{instance}} CPU {{cpu}}")]),
    ("Full queues", "Packets dropped because the queue of their CPU was full.", PACKETS, [(rate("culvert_spread_full_total", "instance, cpu"), "{{instance}} CPU {{cpu}}")]),
    ("Moves", "Buckets of UEs or flows that moved to another CPU.", COUNT, [(rate("culvert_spread_moves_total", "instance"), "{{instance}}")]),
])

POLICIES = ("SR policies", [
    ("Bits by policy", "As sent, with all headers.", BITS, [(f"topk(10, {rate('culvert_policy_bytes_total', 'policy', times=8)})", "{{policy}}")]),
    ("Packets by segment list", "How policies spread packets over their lists.", PACKETS,
     [(f"topk(20, {rate('culvert_segment_list_packets_total', 'policy, list')})", "{{policy}} list {{list}}")]),
    ("Round trip by segment list", "Mean of the latest probes.", SECONDS,
     [(largest(f"culvert_segment_list_round_trip_seconds{{{HERE}}}", "policy, list"), "{{policy}} list {{list}}")]),
    ("Lists that are down", "Segment lists that packets cannot take.", COUNT,
     [(f"count by (policy) (culvert_segment_list_up{{{HERE}}} == 0)", "{{policy}}")]),
    ("Lists not in use for their delay", "Above delay_bound, or slower than the lowest.", COUNT,
     [(f"count by (policy) (culvert_segment_list_slow{{{HERE}}} == 1)", "{{policy}}")]),
    ("Policies without protection", "No path takes over at once if the active one fails.", COUNT,
     [(f"count(culvert_policy_protected{{{HERE}}} == 0)", "policies")]),
    ("Bits by traffic class", "Of classes that are told from best effort.", BITS, [(rate("culvert_class_bytes_total", "class", times=8), "{{class}}")]),
])

DASHBOARDS = {
    "upf": ("Culvert: UPF", "A 5G user plane function: sessions, SMFs, slices, data path.", ["slice"], [
        (STAT, HEALTH + [
            ("Sessions", "PFCP sessions.", COUNT, [(f"sum(culvert_sessions{{{HERE}}})", "sessions")]),
            ("SMFs up", "PFCP associations whose SMF answers heartbeats.", COUNT, [(f'sum(culvert_associations{{{HERE},state="up"}})', "up")]),
            ("Journal failing", "1: the disk of the session journal is full or fails. SMFs get refusals.", COUNT,
             [(f"max(culvert_journal_failing{{{HERE}}})", "failing")]),
        ]),
        ("Sessions", [
            ("Sessions", "PFCP sessions, and how many there is room for.", COUNT,
             [(total("culvert_sessions", "instance"), "{{instance}}"), (total("culvert_sessions_max", "instance"), "{{instance}} limit")]),
            ("UE pools", "Addresses of a pool that sessions have.", RATIO,
             [(total("culvert_ue_pool_used", "prefix") + " / " + total("culvert_ue_pool_size", "prefix"), "{{prefix}}")]),
            ("GTP-U peers", "gNBs and UPFs that sessions send to, by whether they answer Echo Requests.", COUNT,
             [(total("culvert_gtpu_peers", "state"), "{{state}}")]),
            ("Buffered for idle UEs", "Bytes of packets that wait for a UE to be paged.", BYTES, [(total("culvert_buffered_bytes", "instance"), "{{instance}}")]),
            ("Announced prefixes", "UE prefixes that BGP announces.", COUNT,
             [(total("culvert_announced_prefixes", "network_instance, state"), "{{network_instance}} {{state}}")]),
            ("Events", "What the user plane function did besides forwarding.", COUNT, [(rate("culvert_upf_events_total", "event"), "{{event}}")]),
        ]),
        ("N4", [
            ("PFCP received", "Messages from SMFs.", COUNT, [(rate("culvert_pfcp_received_total", "message"), "{{message}}")]),
            ("Refused requests", "Responses whose cause is not 1, request accepted (TS 29.244 section 8.2.1).", COUNT,
             [(rate("culvert_pfcp_responses_total", "message, cause", 'cause!="1"'), "{{message}} cause {{cause}}")]),
            ("Reports without answer", "Session reports that no SMF has answered yet.", COUNT, [(total("culvert_pfcp_reports_pending", "instance"), "{{instance}}")]),
            ("Answered in the data path", "With upf.n4_fast.", COUNT, [(rate("culvert_pfcp_data_path_total", "event"), "{{event}}")]),
        ]),
        SLICES, DATA_PATH, SPREAD, PROCESS,
    ]),
    "slice": ("Culvert: slices", "What network slices carry, one by one.", ["slice"], [SLICES]),
    "gateway": ("Culvert: gateway and SRv6 node", "GTP-U and SRv6 without sessions: SIDs, tunnels, policies, data path.", [], [
        (STAT, HEALTH + [
            ("BGP sessions up", "Sessions that are established.", COUNT, [(f'sum(culvert_bgp_peers{{{HERE},state="established"}}) or vector(0)', "established")]),
            ("Dropped", "Packets per second, for all reasons.", PACKETS, [(rate("culvert_packets_total", "outcome", 'outcome="dropped"'), "dropped")]),
        ]),
        ("SIDs and tunnels", [
            ("Packets by SID", "That a local SID processed and forwarded.", PACKETS,
             [(f"topk(10, {rate('culvert_sid_packets_total', 'sid, behavior')})", "{{sid}} {{behavior}}")]),
            ("Bits by SID", "As received.", BITS, [(f"topk(10, {rate('culvert_sid_bytes_total', 'sid, behavior', times=8)})", "{{sid}} {{behavior}}")]),
            ("GTP-U tunnels", "T-PDUs of all configured tunnels.", BITS, [(rate("culvert_tunnels_bytes_total", "direction", times=8), "{{direction}}")]),
            ("Largest tunnels", "T-PDUs by tunnel.", BITS,
             [(f"topk(10, {rate('culvert_tunnel_bytes_total', 'tunnel, direction', times=8)})", "{{tunnel}} {{direction}}")]),
        ]),
        POLICIES, DATA_PATH, SPREAD, PROCESS,
    ]),
    "cluster": ("Culvert: Kubernetes cluster", "Nodes, pods, NetworkPolicies and flows of a cluster.", [], [
        (STAT, HEALTH + [
            ("Disputed nodes", "A node says of itself what is not its own: culvert node shows which.", COUNT, [(f"max(culvert_disputed_nodes{{{HERE}}})", "nodes")]),
            ("BGP sessions up", "Sessions that are established.", COUNT, [(f'sum(culvert_bgp_peers{{{HERE},state="established"}}) or vector(0)', "established")]),
            ("Policy problems", "Rules of NetworkPolicies that cannot be used.", COUNT, [(f"max(culvert_network_policy_problems{{{HERE}}})", "problems")]),
        ]),
        ("NetworkPolicies", [
            ("Pods", "Of all nodes, by what NetworkPolicies say of them.", COUNT, [(total("culvert_network_policy_pods", "state"), "{{state}}")]),
            ("Dropped by policies", "The pods that policies drop most packets of.", PACKETS,
             [(f"topk(10, {rate('culvert_network_policy_dropped_packets_total', 'namespace, pod, direction')})", "{{namespace}}/{{pod}} {{direction}}")]),
            ("New flows", "That began and were allowed, by node.", COUNT, [(rate("culvert_network_policy_flows_total", "instance, direction"), "{{instance}} {{direction}}")]),
            ("Displaced flows", "Flows that were forgotten early: raise limits.pod_flows.", COUNT,
             [(f"topk(10, {rate('culvert_network_policy_displaced_flows_total', 'namespace, pod')})", "{{namespace}}/{{pod}}")]),
            ("Policies", "NetworkPolicies, and the identities and addresses that their rules need.", COUNT,
             [(largest(f"culvert_network_policies{{{HERE}}}", "job"), "policies"), (largest(f"culvert_network_policy_identities{{{HERE}}}", "job"), "identities"),
              (largest(f"culvert_network_policy_peers{{{HERE}}}", "job"), "addresses")]),
            ("Failures", "Times that the data path did not take what policies say.", COUNT, [(rate("culvert_network_policy_failures_total", "instance"), "{{instance}}")]),
        ]),
        ("Flows (overlay.flows)", [
            ("Largest pairs of workloads", "Estimated from the packets that were seen.", BITS,
             [(f"topk(10, {rate('culvert_overlay_workload_bytes_total', 'source_namespace, source, destination_namespace, destination', times=8)})",
               "{{source_namespace}}/{{source}} to {{destination_namespace}}/{{destination}}")]),
            ("Flows by verdict", "New flows of which a packet was seen.", COUNT, [(rate("culvert_overlay_workload_flows_total", "verdict"), "{{verdict}}")]),
            ("Time of TCP handshakes", "From SYN to SYN/ACK, by destination.", SECONDS,
             [(f"topk(10, {rate('culvert_overlay_workload_handshake_seconds_total', 'destination_namespace, destination')} / "
               f"({rate('culvert_overlay_workload_handshakes_total', 'destination_namespace, destination')} > 0))", "{{destination_namespace}}/{{destination}}")]),
            ("Kept flows", "Flows that culvert flow can show.", COUNT, [(total("culvert_overlay_flows", "instance"), "{{instance}}")]),
        ]),
        POLICIES, DATA_PATH, PROCESS,
    ]),
}


def query(name, expression, legend, instant):
    q = prometheus.Dataquery().ref_id(name).expr(expression).legend_format(legend).datasource(SOURCE)
    return q.instant() if instant else q.range()


def panel(title, description, unit, queries, figure):
    p = stat.Panel() if figure else timeseries.Panel()
    p = p.title(title).description(description).datasource(SOURCE).unit(unit).height(4 if figure else 8).span(4 if figure else 12).min(0)
    for name, (expression, legend) in zip("ABC", queries):
        p = p.with_target(query(name, expression, legend, figure))
    if not figure:
        p = p.fill_opacity(10).show_points(common.VisibilityMode.NEVER).legend(
            legend_below().calcs(["lastNotNull", "max"])).tooltip(tooltip_of_all())
    return p


def legend_below():
    return looks.VizLegendOptions().display_mode(common.LegendDisplayMode.TABLE).placement(common.LegendPlacement.BOTTOM).show_legend(True)


def tooltip_of_all():
    return looks.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)


def variable(name, label, of):
    """A variable whose values are those of a label, by a query; several may be chosen, all are by default."""
    return (dashboard.QueryVariable(name).label(label).datasource(SOURCE).query(of).multi(True).include_all(True)
            .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED))


def build(uid, title, description, variables, rows):
    d = (dashboard.Dashboard(title).uid("culvert-" + uid).description(description).tags(["culvert"]).refresh("30s").time("now-1h", "now")
         .timezone("browser").tooltip(model.DashboardCursorSync.CROSSHAIR)
         .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
         .with_variable(variable("job", "Job", "label_values(culvert_build_info, job)"))
         .with_variable(variable("instance", "Instance", 'label_values(culvert_build_info{job=~"$job"}, instance)')))
    if "slice" in variables:
        d = d.with_variable(variable("slice", "Slice", f"label_values(culvert_slice_sessions{{{HERE}}}, slice)"))
    for name, panels in rows:
        d = d.with_row(dashboard.Row(name))
        for p in panels:
            d = d.with_panel(panel(*p, figure=name == STAT))
    return d.build()


def main():
    if len(sys.argv) != 2:
        sys.exit("dashboards.py: want the directory to write to")
    for uid, of in DASHBOARDS.items():
        text = JSONEncoder(sort_keys=True, indent=2).encode(build(uid, *of))
        pathlib.Path(sys.argv[1], f"{uid}.json").write_text(json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
