// Package install puts the plugin where container runtimes look for it, and gets
// the kernel ready: what the first containers of a node's pod do.
package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Name of the plugin's program, of its network, and of what is to be made of it.
const (
	Program  = "culvert-cni"
	network  = "culvert"
	ConfFile = "10-culvert.conflist" // runtimes take the first by name
)

// Files are the plugin's.
type Files struct {
	Plugin  string // the program that is to be installed
	BinDir  string
	ConfDir string
	Version string   // of CNI
	Chain   []string // plugins to chain behind, where they are in BinDir
}

// Install writes the program by one rename, then the configuration, and says
// which were not there as they are now. Without a ConfDir the configuration is
// left to who knows when pods can be added.
func (f Files) Install() (changed []string, err error) {
	program, err := os.ReadFile(f.Plugin)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(f.BinDir, Program)
	differs, err := put(path, program, 0o755)
	if differs {
		changed = []string{path}
	}
	if err != nil || f.ConfDir == "" {
		return changed, err
	}
	more, err := f.Configure()
	return append(changed, more...), err
}

// Configure writes the configuration by one rename: with it the runtime has a
// network for pods, and the node becomes ready.
func (f Files) Configure() (changed []string, err error) {
	// Ours has to know whose bandwidth another one limits, too.
	plugins := []map[string]any{{"type": Program, "capabilities": map[string]bool{"bandwidth": true}}}
	for _, name := range f.Chain {
		if _, err := os.Stat(filepath.Join(f.BinDir, name)); err != nil {
			continue // a plugin that is not there would fail every pod
		}
		plugin := map[string]any{"type": name}
		if c := capabilities[name]; c != "" {
			plugin["capabilities"] = map[string]bool{c: true}
		}
		plugins = append(plugins, plugin)
	}
	conf, err := json.MarshalIndent(map[string]any{"cniVersion": f.Version, "name": network, "plugins": plugins}, "", "  ")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(f.ConfDir, ConfFile)
	if differs, err := put(path, append(conf, '\n'), 0o644); !differs || err != nil {
		return nil, err
	}
	return []string{path}, nil
}

// Remove takes the files away, first the configuration, and says which were
// there. Pods that are there keep their network.
func (f Files) Remove() (removed []string, err error) {
	for _, path := range []string{filepath.Join(f.ConfDir, ConfFile), filepath.Join(f.BinDir, Program)} {
		switch err := os.Remove(path); {
		case err == nil:
			removed = append(removed, path)
		case !errors.Is(err, fs.ErrNotExist):
			return removed, err
		}
	}
	return removed, nil
}

// Present returns those of the files that are there. They stay while the daemon of a node starts again.
func (f Files) Present() (paths []string, err error) {
	for _, path := range []string{filepath.Join(f.ConfDir, ConfFile), filepath.Join(f.BinDir, Program)} {
		switch _, err := os.Stat(path); {
		case err == nil:
			paths = append(paths, path)
		case !errors.Is(err, fs.ErrNotExist):
			return paths, err
		}
	}
	return paths, nil
}

// capabilities are what plugins that are often chained want the runtime to tell.
var capabilities = map[string]string{"portmap": "portMappings", "bandwidth": "bandwidth"}

// put writes a file that is either as before or as it shall be, also for who
// reads or runs it meanwhile.
func put(path string, data []byte, mode fs.FileMode) (differs bool, err error) {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm() == mode {
			return false, nil
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".culvert-*")
	if err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	return true, os.Rename(f.Name(), path)
}
