package logevent

import "log/slog"

// SR policies, BGP and traffic engineering.
var (
	PolicyPathChanged = define("policy.path_changed", slog.LevelInfo,
		"An SR policy takes another candidate path; the line says why.",
		"")
	SegmentListDown = define("segment_list.down", slog.LevelWarn,
		"No packets take a segment list any more: its probes are lost, or no route leads to its first segment.",
		"Check the links along the segments in the line.")
	SegmentListUp = define("segment_list.up", slog.LevelInfo,
		"Packets take a segment list again.",
		"")
	SegmentListSlow = define("segment_list.slow", slog.LevelInfo,
		"Packets leave a segment list for its delay: it is above `delay_bound`, or `lowest_delay` chose another one.",
		"If it is above the bound, check the links along the segments in the line for queues.")
	LivenessStarted = define("liveness.started", slog.LevelInfo,
		"Probes of segment lists begin.",
		"")
	LivenessFailed = define("liveness.failed", slog.LevelError,
		"The probes of segment lists could not be ended as the configuration demands.",
		"Restart the daemon, and report it.")
	BGPStarted = define("bgp.started", slog.LevelInfo,
		"The BGP speaker runs; AS number and router ID are named.",
		"")
	BGPSessionUp = define("bgp.session_up", slog.LevelInfo,
		"A BGP session is established.",
		"")
	BGPSessionDown = define("bgp.session_down", slog.LevelWarn,
		"A BGP session has ended. What the peer said stays for the graceful restart time.",
		"Check the peer; its reason is in the line.")
	BGPSessionReset = define("bgp.session_reset", slog.LevelInfo,
		"A BGP session is reset by this node, so that both sides have the same routes after a restart.",
		"")
	BGPResetFailed = define("bgp.reset_failed", slog.LevelError,
		"A BGP session could not be reset.",
		"Reset it at the peer.")
	BGPFamiliesMissing = define("bgp.families_missing", slog.LevelInfo,
		"A BGP peer does not accept all configured address families.",
		"Configure the families at the peer, or leave them out here.")
	BGPNotLongLived = define("bgp.not_long_lived", slog.LevelInfo,
		"A BGP peer does not offer long-lived graceful restart (RFC 9494): its routes end soon after it is gone.",
		"Enable it at the peer.")
	BGPMaxPrefixes = define("bgp.max_prefixes", slog.LevelError,
		"A BGP peer advertises more than `bgp.max_prefixes`, and is disconnected for a while.",
		"Filter at the peer, or raise the limit.")
	BGPLimitFailed = define("bgp.limit_failed", slog.LevelError,
		"The limit of a BGP peer's routes could not be enforced.",
		"If it repeats, restart the daemon, and report it.")
	BGPRouteRejected = define("bgp.route_rejected", slog.LevelWarn,
		"A route cannot be used, and counts as withdrawn (RFC 7606).",
		"Fix it at its origin: the error names the attribute.")
	BGPPolicyRejected = define("bgp.policy_rejected", slog.LevelWarn,
		"An SR policy cannot be used (RFC 9830), and counts as withdrawn.",
		"Fix it at its origin: the line names what is wrong.")
	BGPLinkStateRejected = define("bgp.link_state_rejected", slog.LevelWarn,
		"A BGP-LS object cannot be used: the topology lacks it.",
		"Fix it at its origin: the error names the TLV.")
	BGPForeignPrefix = define("bgp.foreign_prefix", slog.LevelWarn,
		"A BGP peer advertises a prefix of this node; it is ignored.",
		"Find out who uses the prefix: two nodes may have the same one.")
	BGPAdvertiseFailed = define("bgp.advertise_failed", slog.LevelError,
		"The path to this node could not be advertised.",
		"If it repeats, restart the daemon, and report it.")
	BGPAnnounceFailed = define("bgp.announce_failed", slog.LevelError,
		"UE prefixes could not be announced or withdrawn. The daemon tries again.",
		"The error says why.")
	BGPStateUnknown = define("bgp.state_unknown", slog.LevelError,
		"The state of a BGP session cannot be read: routes of the peer may stay too long.",
		"If it repeats, restart the daemon, and report it.")
	BGPStopFailed = define("bgp.stop_failed", slog.LevelWarn,
		"BGP did not end cleanly: peers see the session time out.",
		"")
	BGPLibrary = define("bgp.library", slog.LevelWarn,
		"GoBGP's own message, at the level that GoBGP gives it.",
		"The text says what.")
	TERound = define("te.round", slog.LevelInfo,
		"The engine's plan, or why nothing changes, is another than before.",
		"")
	TEProblem = define("te.problem", slog.LevelWarn,
		"The engine cannot plan or apply; lists stay as they are.",
		"The problem is in the line.")
	TEDemandChanged = define("te.demand_changed", slog.LevelInfo,
		"The engine moves a demand to other segment lists.",
		"")
	TEDelaysChanged = define("te.delays_changed", slog.LevelInfo,
		"The engine writes a candidate path with the `delay_bound` and `lowest_delay` that its class has now. Its lists stay.",
		"")
	TERepairs = define("te.repairs_changed", slog.LevelInfo,
		"A headend holds other repair lists ready for the loss of its link.",
		"")
	TEEnded = define("te.ended", slog.LevelInfo,
		"The engine has ended. Its segment lists stay at the headends.",
		"")
	TEAdopted = define("te.adopted", slog.LevelInfo,
		"Headends have candidate paths of an earlier engine; this one keeps them.",
		"")
	TEHeadendSilent = define("te.headend_silent", slog.LevelWarn,
		"Headends do not answer: the candidate paths that they have of an earlier engine will be withdrawn.",
		"Check the management address of these headends before you start the engine again.")
	TELease = define("te.lease", slog.LevelInfo,
		"The lease of the engines has another holder.",
		"")
)
