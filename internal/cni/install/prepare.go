package install

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Prepare has the kernel forward between pods, uplinks and the node, and says
// what it changed. sys is the folder of sysctls, /proc/sys. The agent can then do
// without the right to write there.
func Prepare(sys string) (changed []string, err error) {
	set := func(name, when, value string) error {
		path := filepath.Join(sys, name)
		now, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		old := strings.TrimSpace(string(now))
		if old == value || when != "" && old != when {
			return nil
		}
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			return err
		}
		changed = append(changed, fmt.Sprintf("%s = %s", strings.ReplaceAll(name, "/", "."), value))
		return nil
	}
	// An interface that forwards would take no routes from routers any more, and
	// a strict look at sources would drop what comes out of a tunnel.
	for _, each := range []struct{ folder, name string }{{"net/ipv6/conf", "accept_ra"}, {"net/ipv4/conf", "rp_filter"}} {
		folders, err := os.ReadDir(filepath.Join(sys, each.folder))
		if err != nil {
			return changed, err
		}
		for _, f := range folders {
			// An interface can go meanwhile.
			if err := set(filepath.Join(each.folder, f.Name(), each.name), "1", "2"); err != nil && !os.IsNotExist(err) {
				return changed, err
			}
		}
	}
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if err := set(name, "", "1"); err != nil {
			return changed, err
		}
	}
	return changed, nil
}
