package logevent

import "log/slog"

// The N4 server.
var (
	PFCPAssociated = define("pfcp.associated", slog.LevelInfo,
		"An SMF has set up its association.",
		"")
	PFCPReleased = define("pfcp.released", slog.LevelInfo,
		"An SMF has released its association.",
		"")
	PFCPAssociationFailed = define("pfcp.association_failed", slog.LevelWarn,
		"A configured SMF did not accept the association. The daemon tries again.",
		"Check the address in `upf.smfs`, the route to it, and the SMF's log.")
	PFCPReleaseRefused = define("pfcp.release_refused", slog.LevelWarn,
		"An SMF does not release its association, as an operator had asked.",
		"Release it at the SMF.")
	PFCPSMFSilent = define("pfcp.smf_silent", slog.LevelWarn,
		"An SMF does not answer heartbeats. Its sessions stay.",
		"Check the SMF and the route to it.")
	PFCPSMFRecovered = define("pfcp.smf_recovered", slog.LevelInfo,
		"An SMF answers heartbeats again.",
		"")
	PFCPSMFRestarted = define("pfcp.smf_restarted", slog.LevelWarn,
		"An SMF has restarted: its sessions are gone (TS 23.527).",
		"None if you restarted it; else see the SMF's log.")
	PFCPRecoveryUnconfirmed = define("pfcp.recovery_unconfirmed", slog.LevelWarn,
		"A heartbeat had a Recovery Time Stamp that the SMF itself does not confirm. Nothing changes.",
		"Somebody may forge heartbeats: protect N4. Or two SMFs share an address.")
	PFCPSessionsRemoved = define("pfcp.sessions_removed", slog.LevelWarn,
		"An association ended, and its sessions were removed.",
		"The reason is in the line.")
	PFCPSessionsNotRemoved = define("pfcp.sessions_not_removed", slog.LevelError,
		"Sessions of a lost association could not be deleted. The daemon tries again.",
		"The error says why; check the journal's disk.")
	PFCPOrphansRemoved = define("pfcp.orphans_removed", slog.LevelWarn,
		"The start found sessions without an association, and deleted them.",
		"")
	PFCPOrphanNotRemoved = define("pfcp.orphan_not_removed", slog.LevelError,
		"The start found a session without an association, and could not delete it.",
		"The error says why; check the journal's disk.")
	PFCPSenderRefused = define("pfcp.sender_refused", slog.LevelWarn,
		"PFCP came from an address that is not in `upf.smfs`.",
		"Add the address if it is an SMF's; else find out who sends to N4.")
	PFCPWrongInterface = define("pfcp.wrong_interface", slog.LevelWarn,
		"PFCP came by an interface that is not for N4.",
		"Route N4 over the interface with the role n4, or fix the roles.")
	PFCPUnauthorised = define("pfcp.unauthorised", slog.LevelWarn,
		"A request came without an association, or for another SMF's session.",
		"After a restart of the SMF it passes; else check the SMF.")
	PFCPMalformed = define("pfcp.malformed", slog.LevelWarn,
		"A datagram at N4 is no readable PFCP.",
		"Capture N4 (`tcpdump udp port 8805`) and check the sender.")
	PFCPRequestRefused = define("pfcp.request_refused", slog.LevelWarn,
		"A node request was refused with a cause.",
		"The cause is in the line: check the SMF's configuration.")
	PFCPSessionRefused = define("pfcp.session_refused", slog.LevelWarn,
		"A session was not established or not modified.",
		"Cause and offending IE are in the line; a full table needs a higher limit.")
	PFCPSessionUnknown = define("pfcp.session_unknown", slog.LevelWarn,
		"An SMF does not know a session that was reported to it: the session is removed.",
		"")
	PFCPSessionNotDeleted = define("pfcp.session_not_deleted", slog.LevelWarn,
		"A session that its SMF does not know could not be deleted.",
		"The error says why; check the journal's disk.")
	PFCPPFDFailed = define("pfcp.pfd_failed", slog.LevelWarn,
		"A session keeps the old PFDs of an application.",
		"The error says why; a full table needs a higher limit.")
	PFCPNodeReportFailed = define("pfcp.node_report_failed", slog.LevelWarn,
		"A Node Report did not reach its SMF.",
		"Check the SMF and the route to it.")
	PFCPNodeReportsRefused = define("pfcp.node_reports_refused", slog.LevelWarn,
		"An SMF takes no Node Reports, and gets no more of them.",
		"None; report it to the SMF's vendor.")
	PFCPRateLimited = define("pfcp.rate_limited", slog.LevelWarn,
		"A sender exceeds what one may send in a second: the excess is dropped.",
		"If it is an SMF, name its address in `upf.smfs`: named SMFs may send more. Else find out who sends to N4.")
	PFCPQueueFull = define("pfcp.queue_full", slog.LevelWarn,
		"The N4 server is too slow for what arrives: messages are dropped, and SMFs send them again.",
		"Give the daemon more CPU, or lower the rate.")
	PFCPSendFailed = define("pfcp.send_failed", slog.LevelWarn,
		"A PFCP message could not be sent.",
		"Check address and route of N4.")
	PFCPPanic = define("pfcp.panic", slog.LevelWarn,
		"A PFCP message was not understood because of a fault of the daemon: it is dropped, and the daemon goes on.",
		"Report it with the stack in the line.")
	PFCPStateUnsaved = define("pfcp.state_unsaved", slog.LevelWarn,
		"Associations are not in the journal: a restart would lose them.",
		"Check space of the journal's disk.")
	PFCPStampUnsaved = define("pfcp.stamp_unsaved", slog.LevelWarn,
		"The Recovery Time Stamp is not in its file: the next start answers heartbeats only when all sessions are there.",
		"Check space and permissions of the state directory.")
)
