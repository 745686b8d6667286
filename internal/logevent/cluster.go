package logevent

import "log/slog"

// The Kubernetes API, the overlay, pods and NetworkPolicies.
var (
	KubeUnreachable = define("kube.unreachable", slog.LevelWarn,
		"The Kubernetes API cannot be reached: what it sent before stays valid.",
		"Check the API server, the kubeconfig and the route to it.")
	KubeReachable = define("kube.reachable", slog.LevelInfo,
		"The Kubernetes API can be reached again.",
		"")
	KubeStopped = define("kube.stopped", slog.LevelError,
		"The Kubernetes API is not watched any more: changes in the cluster are not seen.",
		"Restart the daemon; the error says why.")
	KubeWriteFailed = define("kube.write_failed", slog.LevelWarn,
		"The Kubernetes API did not take what this node wrote: a status, an annotation or an event. The daemon tries again.",
		"Check the permissions of its service account.")
	KubeClaimFailed = define("kube.claim_failed", slog.LevelWarn,
		"This node has no locator yet: it could not claim one from the pool. The daemon tries again.",
		"The error says why: a pool that is used up needs a longer prefix.")
	KubeClaimed = define("kube.claimed", slog.LevelInfo,
		"This node's locator is claimed.",
		"")
	KubeServiceUnwatched = define("kube.service_unwatched", slog.LevelError,
		"The endpoints of a Service cannot be watched: a traffic class lacks them.",
		"Check the permissions of the service account.")
	KubePolicyUnselected = define("kube.policy_unselected", slog.LevelWarn,
		"The node selector of an SRv6Policy cannot be read: the policy is for no node.",
		"Fix the selector in the object.")
	KubePolicyRejected = define("kube.policy_rejected", slog.LevelWarn,
		"An SRv6Policy or ConfigMap cannot be used: what was read of it before stays.",
		"Fix the object: its status has the error, too.")
	KubeNodeRejected = define("kube.node_rejected", slog.LevelWarn,
		"What a node says of itself cannot be read: what it said before stays.",
		"Check the version of the daemon on that node.")
	KubeNodeDisputed = define("kube.node_disputed", slog.LevelWarn,
		"A node says of itself what the cluster does not vouch for: it is refused, or prefixes are left out.",
		"The node may be compromised: check who can write its Node object.")
	KubeLibrary = define("kube.library", slog.LevelWarn,
		"client-go's own message, at the level that client-go gives it.",
		"The text says what.")
	OverlayUnfit = define("overlay.unfit", slog.LevelError,
		"This node cannot be in the cluster as its network is now. The daemon tries again.",
		"The error names the link or address that is missing.")
	OverlayMTUChanged = define("overlay.mtu_changed", slog.LevelInfo,
		"The MTU of pods changes, because links or policies changed.",
		"")
	OverlayMasqueradeRemoved = define("overlay.masquerade_removed", slog.LevelWarn,
		"Somebody removed the tables `culvert` of nftables: what pods sent out of the cluster kept their addresses. The daemon writes the tables again.",
		"Find out who flushes the whole ruleset (`nft flush ruleset`), as the unit `nftables` of Debian does when it starts.")
	CNIReady = define("cni.ready", slog.LevelInfo,
		"Pods can be added: the CNI configuration is written.",
		"")
	PodAdded = define("pod.added", slog.LevelInfo,
		"A pod is connected.",
		"")
	PodRemoved = define("pod.removed", slog.LevelInfo,
		"A pod is disconnected, and its addresses are free.",
		"")
	PodFailed = define("pod.failed", slog.LevelError,
		"A pod could not be connected again, after a start or after its interface came back. The daemon tries again.",
		"The error says why; deleting the pod makes a new one.")
	PodRecovered = define("pod.recovered", slog.LevelWarn,
		"The state file was lost: a running pod keeps the addresses that the data path has of it.",
		"Delete the pod, so that its controller makes a new one: until then, or until the runtime checks it, the node does not know its container.")
	PodRegained = define("pod.regained", slog.LevelInfo,
		"The runtime checked a pod of which the state file was lost: the node knows its container again.",
		"")
	PodMTUFailed = define("pod.mtu_failed", slog.LevelWarn,
		"A pod's MTU could not be set. The daemon tries again.",
		"If it repeats, delete the pod.")
	NetPolFailed = define("netpol.failed", slog.LevelError,
		"NetworkPolicies could not be applied: pods stay isolated as before. The daemon tries again.",
		"The error says which table is full or what is missing.")
	NetPolUnusable = define("netpol.unusable", slog.LevelWarn,
		"A NetworkPolicy cannot be used as it is; the problem names what of it.",
		"Fix the object.")
	NetPolExceeded = define("netpol.exceeded", slog.LevelWarn,
		"There is no room for the NetworkPolicies of a namespace: its pods that they isolate are closed on this node, those of others are not.",
		"Have the namespace's owner use fewer or larger ipBlocks. It is tried again when its policies change, and each minute.")
	NetPolUnknown = define("netpol.unknown", slog.LevelWarn,
		"What NetworkPolicies say of a new pod is not known yet: until then it reaches this node only.",
		"If it lasts, check the route to the API server.")
	NetPolUncounted = define("netpol.uncounted", slog.LevelWarn,
		"The counters of NetworkPolicies cannot be read.",
		"If it repeats, report it.")
	FlowsFailed = define("flows.failed", slog.LevelError,
		"Records of flows are not read any more.",
		"Restart the daemon; the error says why.")
	FlowsUncounted = define("flows.uncounted", slog.LevelWarn,
		"How many records of flows were left out cannot be read.",
		"If it repeats, report it.")
)
