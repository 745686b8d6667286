package logevent

import "log/slog"

// The daemon: start and end, configuration, what the data path takes, interfaces.
var (
	DaemonReady = define("daemon.ready", slog.LevelInfo,
		"The data path is as configured, and the daemon forwards packets.",
		"")
	DaemonDegraded = define("daemon.degraded", slog.LevelError,
		"The daemon runs, and packets are not handled as configured: an interface has no program, or a resource is not in the data path. What failed is tried again.",
		"The line says what, and `culvert status` what is left of it. `culvert run --strict` ends in place of that.")
	DaemonEnded = define("daemon.ended", slog.LevelInfo,
		"The daemon has ended. The data path stays loaded and forwards packets as before.",
		"")
	DaemonStuck = define("daemon.stuck", slog.LevelError,
		"A change of the data path does not end, so systemd gets no sign of life and starts the daemon again.",
		"Take `culvert support` before the restart if you can, and report it.")
	DaemonNotifyFailed = define("daemon.notify_failed", slog.LevelWarn,
		"systemd did not get the daemon's state.",
		"Check that NOTIFY_SOCKET is the one of systemd.")
	APISocketBusy = define("api.socket_busy", slog.LevelInfo,
		"Another daemon has the API's socket. This one waits for it to end.",
		"If it does not go on, find the other daemon: `ss -xlp`.")
	StateFileBusy = define("state.file_busy", slog.LevelInfo,
		"Another daemon has the state file. This one waits for it to end.",
		"If it does not go on, find the other daemon: `fuser` with the file.")
	StateWriteFailed = define("state.write_failed", slog.LevelError,
		"What BGP peers and the Kubernetes API say cannot be written to the state file. After a restart the daemon waits for them longer.",
		"Check space and permissions of the state directory.")
	ConfigApplied = define("config.applied", slog.LevelInfo,
		"The configuration file was applied after SIGHUP. `after_restart` lists the sections that the next start reads.",
		"")
	ConfigRefused = define("config.refused", slog.LevelError,
		"The configuration file was not applied after SIGHUP; what ran before runs on. One line for each mistake.",
		"Fix what the line names, try `culvert check`, and reload again.")
	ConfigRestored = define("config.restored", slog.LevelInfo,
		"The daemon started from the configuration that `culvert apply` set last, instead of the file.",
		"To go back to the file, reload.")
	ConfigSuperseded = define("config.superseded", slog.LevelWarn,
		"The file has changed since `culvert apply`: the daemon started from the file and forgot what was applied.",
		"Apply it again if it was newer.")
	ResourceChanged = define("resource.changed", slog.LevelInfo,
		"A resource was added, changed or deleted, by file, API, BGP or Kubernetes.",
		"")
	ResourceFailed = define("resource.failed", slog.LevelError,
		"A resource could not be written to the data path. The daemon tries again.",
		"See `culvert status`; the error says what is missing or full.")
	ResourceRecovered = define("resource.recovered", slog.LevelInfo,
		"A resource that had failed is written.",
		"")
	UpdateRejected = define("update.rejected", slog.LevelWarn,
		"What a BGP peer or the Kubernetes API said cannot be used with the rest; it counts as withdrawn.",
		"Fix the update at its source: the error names the conflict.")
	UpdateNotWithdrawn = define("update.not_withdrawn", slog.LevelError,
		"A rejected update could not be withdrawn either: its earlier version stays in the data path.",
		"Restart the daemon, and report it.")
	ControlPlaneFailed = define("controlplane.failed", slog.LevelError,
		"BGP or the Kubernetes client could not be brought to the configuration. The daemon tries again.",
		"The error says why: mostly an address or port in use, or a file that is missing.")
	HostSetting = define("host.setting", slog.LevelWarn,
		"Sessions lack a setting of the kernel, or a route.",
		"Do what the line says; `culvert doctor` says it, too.")
	HostConntrackMissing = define("host.conntrack_missing", slog.LevelWarn,
		"The module nf_conntrack cannot be loaded: answers of Services may be lost.",
		"Load nf_conntrack before the daemon starts.")
	KernelReadFailed = define("kernel.read_failed", slog.LevelWarn,
		"Links, routes or neighbours cannot be read from the kernel. The daemon tries again and uses what it knows.",
		"Check memory; if it repeats, report it.")
	NeighbourFailed = define("neighbour.failed", slog.LevelWarn,
		"The kernel was not asked to keep the neighbour of a next hop alive: its first packets may wait for ARP or NDP.",
		"If it repeats, look at `ip neighbour` and its table sizes (`gc_thresh3`).")
	DataPathReady = define("datapath.ready", slog.LevelInfo,
		"The data path is as configured; resources and interfaces are counted.",
		"")
	DataPathOutOfStep = define("datapath.out_of_step", slog.LevelWarn,
		"Routes, neighbours or links of the kernel could not be written to the data path. The daemon tries again.",
		"The error says what is full: raise that limit.")
	DataPathLayoutChanged = define("datapath.layout_changed", slog.LevelInfo,
		"The tables have another layout or size than this version and its limits want: they are copied while packets still meet the former ones.",
		"")
	DataPathTableEmptied = define("datapath.table_emptied", slog.LevelWarn,
		"A table of the earlier daemon could not be kept, and starts empty.",
		"The line says why; what the table held is learned or written again.")
	DataPathLossUncounted = define("datapath.loss_uncounted", slog.LevelWarn,
		"The kernel takes no program at its tracepoints: packets that an interface fails to send are counted as forwarded only. They are forwarded as ever.",
		"Look for what the error names: CAP_PERFMON, for example, or lockdown of the kernel. Then restart the daemon.")
	PathMTULowered = define("path.mtu_lowered", slog.LevelInfo,
		"A router said that packets of a tunnel or a segment list are too big for a link: for ten minutes the path has the lower MTU.",
		"Raise the MTU of that link, or lower that of the sources.")
	PathMTUAged = define("path.mtu_aged", slog.LevelInfo,
		"For ten minutes no router has said that packets of a tunnel or a segment list are too big: the path has the MTU of the links again.",
		"")
	DataPathRecordSkipped = define("datapath.record_skipped", slog.LevelWarn,
		"A record of the data path has another build's size: it was written before an upgrade, and is skipped.",
		"None, unless it goes on for minutes after an upgrade.")
	InterfaceMissing = define("interface.missing", slog.LevelWarn,
		"A configured interface does not exist yet. It is attached when it appears.",
		"Create the interface, or fix its name in the configuration.")
	InterfaceGone = define("interface.gone", slog.LevelWarn,
		"A configured interface has disappeared: no packet comes or leaves by it. It is attached again when it returns.",
		"Find out what removed or renamed it: the kernel's log, the network's configuration, the driver.")
	InterfaceThere = define("interface.there", slog.LevelInfo,
		"A configured interface that was missing is there. `interface.generic`, or `culvert interface`, says how it is attached.",
		"")
	InterfaceDown = define("interface.down", slog.LevelWarn,
		"A configured interface, or an uplink of a cluster's node, is down or has no carrier: no packet comes or leaves by it. `link` is `down` or `no_carrier`.",
		"`down`: `ip link set dev IFACE up`. `no_carrier`: look at the cable, or at the other end.")
	InterfaceUp = define("interface.up", slog.LevelInfo,
		"An interface that was down or had no carrier is up, with carrier.",
		"")
	InterfaceGeneric = define("interface.generic", slog.LevelWarn,
		"The driver cannot run XDP: the interface is attached in generic mode, which is slower.",
		"See docs/reference/support.md for drivers.")
	PinsMissing = define("datapath.pins_missing", slog.LevelError,
		"Somebody has removed pins of the data path. Packets are forwarded until the daemon ends, and not after.",
		"Restart culvert while packets flow: it pins the data path again. `culvert status` names a pin.")
	InterfaceOpen = define("interface.open", slog.LevelError,
		"An interface cannot be closed: until the data path is on it, the kernel gets every frame.",
		"The error says why. The kernel's firewall can keep forwarded packets away meanwhile.")
	InterfaceStaysClosed = define("interface.stays_closed", slog.LevelError,
		"An interface that is no longer configured cannot be opened: the kernel gets only what its host listed.",
		"The error says why. `culvert unpin`, with the daemon stopped, opens it.")
	TraceStuck = define("trace.stuck", slog.LevelError,
		"A trace could not be ended in the data path, and costs time for each packet.",
		"Restart the daemon.")
	SpreadSplit = define("spread.split", slog.LevelInfo,
		"One UE fills a CPU: its flows are spread over several.",
		"")
	SpreadJoined = define("spread.joined", slog.LevelInfo,
		"A UE whose flows were spread fits one CPU again.",
		"")
	SpreadFailed = define("spread.failed", slog.LevelError,
		"Packets cannot be spread over CPUs as configured.",
		"The error says why; packets stay on the CPU of their queue.")
)
