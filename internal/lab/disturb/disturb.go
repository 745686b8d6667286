package disturb

import (
	"github.com/culvert-net/culvert/internal/lab/instance"
)

// Runner runs the checks of an instance that is up.
type Runner struct {
	*instance.Instance
	UpgradeTo string // binary that an upgrade goes to
	Back      bool   // a change of the variant is taken back: it is the only one that is run
}
