package instance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/kubelet"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/report"
)

// Whole says whether everything that was made is still there.
func (in *Instance) Whole() bool {
	for _, name := range in.State.Namespaces {
		if mark, ok, err := (namespace.Named{Name: name}).Mark(); err != nil || !ok || mark != in.State.Mark {
			return false
		}
	}
	for _, p := range in.State.Processes {
		if !p.Alive() {
			return false
		}
	}
	return true
}

// Down removes everything that the state names. It is idempotent.
func (in *Instance) Down(progress *report.Progress) error {
	if in.State.Mark == "" {
		return nil
	}
	progress.Say("%s: taking down", in.Name)
	var errs []error
	for _, p := range slices.Backward(in.State.Processes) { // what came later needs what came before
		errs = append(errs, p.Stop(unix.SIGTERM, 3*time.Second))
	}
	for _, dir := range slices.Concat(in.State.Pins, in.State.Disks) {
		errs = append(errs, os.RemoveAll(dir))
	}
	for _, name := range in.State.Cgroups {
		errs = append(errs, kubelet.RemoveCgroup(name))
	}
	for _, name := range in.State.Namespaces {
		err := namespace.Named{Name: name}.Delete(in.State.Mark)
		if errors.Is(err, namespace.ErrForeign) { // ours has gone, another came
			progress.Say("%v", err)
			err = nil
		}
		errs = append(errs, err)
	}
	// Not made, or in use by other instances: both are fine.
	_ = os.Remove(in.Pins())
	_ = os.Remove(PinDir)
	_ = os.Remove(filepath.Join(DiskDir, in.Name))
	_ = os.Remove(DiskDir)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("lab %s: down: %w", in.Name, err)
	}
	in.State = State{}
	return errors.Join(os.RemoveAll(in.Dir()), os.Remove(in.Dir()+".json"))
}
