package doctor

import (
	"fmt"

	"github.com/culvert-net/culvert/internal/overlay"
)

// checkFaults says what the daemon of a member, with a number of other nodes, refuses.
func checkFaults(f *overlay.Faults, nodes int) []Check {
	vouched := advice("correct InternalIPs or podCIDRs of the Node, or the configuration of its agent; overlay.accept is for what no Node says")
	return []Check{
		check("this node, for the others", "they use what it says of itself",
			problem{len(f.Self) > 0, Fail, some(f.Self), vouched}),
		check("other nodes", fmt.Sprintf("all %d are used", nodes),
			problem{len(f.Refused) > 0, Fail, "not used: " + some(f.Refused), vouched},
			problem{len(f.Partly) > 0, Warn, "not all is used: " + some(f.Partly), vouched}),
		check("SR policies", "all paths are valid",
			problem{len(f.NoPath) > 0, Fail, "no valid path: " + some(f.NoPath), advice("culvert policy shows all paths and why packets do not take them")},
			problem{len(f.Paths) > 0, Warn, "not valid: " + some(f.Paths), advice("culvert policy and kubectl get srp -o yaml show them: correct or delete them")}),
	}
}
