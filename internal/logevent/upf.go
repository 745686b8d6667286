package logevent

import "log/slog"

// The user plane: slices, sessions and their journal, GTP-U peers.
var (
	UPFStarted = define("upf.started", slog.LevelInfo,
		"The N4 server answers; node ID, slices and sessions of the earlier run are named.",
		"")
	UPFAnySMF = define("upf.any_smf", slog.LevelWarn,
		"`upf.smfs` allows every sender: whoever reaches N4 can set up and delete sessions.",
		"List the SMFs' addresses in `upf.smfs`.")
	UEPrefixesAnnounced = define("ue_prefixes.announced", slog.LevelInfo,
		"The UE prefixes of a network instance are announced by BGP.",
		"")
	UEPrefixesWithdrawn = define("ue_prefixes.withdrawn", slog.LevelWarn,
		"The UE prefixes of a network instance are withdrawn: routers send downlink packets elsewhere.",
		"The reason is in the line: fix it.")
	UEPrefixesHeld = define("ue_prefixes.held", slog.LevelWarn,
		"The UE prefixes of a network instance are not announced yet.",
		"The reason is in the line; right after a start it passes by itself.")
	SliceNone = define("slice.none", slog.LevelWarn,
		"Sessions match no slice: they use no SR policy, VRF or rate of a slice.",
		"Give a slice this S-NSSAI or network instance, or neither for one that takes all sessions.")
	SliceReversedSD = define("slice.reversed_sd", slog.LevelInfo,
		"The SMF sends the octets of the SD in reverse order; the slice was found by that.",
		"Report it to the SMF's vendor.")
	SliceAmbiguousSD = define("slice.ambiguous_sd", slog.LevelWarn,
		"The SDs of two slices have the same octets in opposite order, as 000001 and 010000. A session is in the slice with the SD as it was received; an SMF that reverses SDs (Open5GS) means the other one.",
		"Compare with the SMF's configuration; give each slice its `network_instance`, or one of them another SD.")
	SessionClaimRefused = define("session.claim_refused", slog.LevelWarn,
		"An SMF claims an address or a framed route that belongs to somebody else, or to every address: its request is refused with Cause 73.",
		"The line names the prefix and what it overlaps. Fix the subscription; or, if UEs may have it, list it in `upf.framed_routes` or `upf.ue_pools`.")
	SessionUsageUnread = define("session.usage_unread", slog.LevelError,
		"The usage of a session cannot be read: its reports are late.",
		"If it repeats for one SEID, release that session at the SMF, and report it.")
	SessionReportUnsaved = define("session.report_unsaved", slog.LevelError,
		"Usage reports are not in the journal: a restart loses them.",
		"Check space of the journal's disk.")
	SessionLimitFailed = define("session.limit_failed", slog.LevelError,
		"The quota of a session could not be enforced in the data path.",
		"If it repeats for one SEID, release that session at the SMF, and report it.")
	SessionHostsUnread = define("session.hosts_unread", slog.LevelError,
		"The MAC addresses behind Ethernet sessions cannot be read: their reports are late.",
		"If it repeats, report it.")
	SessionNotRestored = define("session.not_restored", slog.LevelError,
		"A session of the earlier run no longer fits the configuration or the tables, and is given up. Its SMF gets Cause 65.",
		"The error names limit or slice: set it as it was, before the next restart.")
	SessionBufferFailed = define("session.buffer_failed", slog.LevelError,
		"The data path could not be told how to treat packets that a session keeps or kept while its UE was idle.",
		"If it repeats for one SEID, release that session at the SMF, and report it.")
	SessionReordered = define("session.reordered", slog.LevelWarn,
		"Packets that were kept for an idle UE may have been overtaken by later ones.",
		"None; if it is frequent, the daemon lacks CPU.")
	N4FastFailed = define("n4_fast.failed", slog.LevelError,
		"The data path cannot answer some PFCP requests by itself: the daemon answers them, which is slower.",
		"If it repeats, report it.")
	JournalFailing = define("journal.failing", slog.LevelError,
		"The session journal takes no records: sessions can be neither established nor modified (Cause 75).",
		"Free space, or fix the disk; the journal goes on by itself.")
	JournalLost = define("journal.lost", slog.LevelWarn,
		"The sessions of the earlier run are lost. The Recovery Time Stamp is new, and SMFs establish them again.",
		"The reason is in the line: mostly a boot, or a journal that was removed.")
	JournalDamaged = define("journal.damaged", slog.LevelWarn,
		"Records of the session journal cannot be read. The sessions named are given up, the others kept.",
		"Check the disk. The damaged files stay beside the journal as `damaged-*`.")
	JournalDeleteUnsaved = define("journal.delete_unsaved", slog.LevelError,
		"The end of sessions is not in the journal: a restart now would bring them back.",
		"Free space, or fix the disk; the journal goes on by itself.")
	JournalCaughtUp = define("journal.caught_up", slog.LevelInfo,
		"The end of all sessions is in the journal again.",
		"")
	JournalRewriteFailed = define("journal.rewrite_failed", slog.LevelError,
		"The session journal could not be written anew, so it keeps growing. The daemon tries again.",
		"Check space of the journal's disk.")
	JournalStateUnsaved = define("journal.state_unsaved", slog.LevelError,
		"An association that was lost is still in the journal: the next start finds it again.",
		"Check space of the journal's disk.")
	GTPUPathFailed = define("gtpu.path_failed", slog.LevelWarn,
		"A GTP-U peer with sessions answers no Echo Request.",
		"Check the peer and the route to it; its sessions and SMFs are in the line.")
	GTPUPathRecovered = define("gtpu.path_recovered", slog.LevelInfo,
		"A GTP-U peer answers Echo Requests again.",
		"")
	GTPUPathUnreported = define("gtpu.path_unreported", slog.LevelWarn,
		"An SMF is not told of a failed GTP-U path: it takes no Node Reports, and the peer never answered an Echo Request.",
		"None if the peer answers no Echo Requests at all; else check the peer.")
	GTPUPathIndicated = define("gtpu.path_indicated", slog.LevelWarn,
		"An SMF that takes no Node Reports gets Error Indication Reports for the sessions of a failed GTP-U path.",
		"Check the peer and the route to it.")
)
