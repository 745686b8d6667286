package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const cgroupDir = "/sys/fs/cgroup"

// MakeCgroup makes the cgroup below which a node's pods are: a kubelet wants it to
// be there, in every hierarchy (cgroups v1), or with its controllers (v2).
func MakeCgroup(name string) error { return makeCgroup(cgroupDir, name) }

// RemoveCgroup removes it and all below it, which have no processes any more. One
// that is not there is no error.
func RemoveCgroup(name string) error { return removeCgroup(cgroupDir, name) }

func makeCgroup(dir, name string) error {
	hierarchies, err := hierarchiesOf(dir)
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		own := filepath.Join(h, name)
		if err := os.MkdirAll(own, 0o755); err != nil {
			return err
		}
		if err := errors.Join(delegate(h), delegate(own), fillCpuset(h, own)); err != nil {
			return fmt.Errorf("cgroup %s: %w", own, err)
		}
	}
	return nil
}

// hierarchiesOf are where cgroups are mounted: one of version 2, or some of
// version 1.
func hierarchiesOf(dir string) (list []string, err error) {
	if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err == nil {
		return []string{dir}, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() { // the links lead to some of them
			list = append(list, filepath.Join(dir, e.Name()))
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no cgroups are mounted at %s", dir)
	}
	return list, nil
}

// delegate gives the cgroups below one all controllers that it has (version 2).
func delegate(cgroup string) error {
	text, err := os.ReadFile(filepath.Join(cgroup, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // version 1
	}
	for _, controller := range strings.Fields(string(text)) {
		err = errors.Join(err, os.WriteFile(filepath.Join(cgroup, "cgroup.subtree_control"), []byte("+"+controller), 0o644))
	}
	return err
}

// fillCpuset copies what a cpuset of version 1 must have before it has processes.
func fillCpuset(parent, cgroup string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		text, err := os.ReadFile(filepath.Join(parent, name))
		if errors.Is(err, fs.ErrNotExist) { // another controller, or version 2, which needs none
			return nil
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(cgroup, name), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func removeCgroup(dir, name string) error {
	hierarchies, err := hierarchiesOf(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range hierarchies {
		errs = append(errs, removeTree(filepath.Join(h, name)))
	}
	return errors.Join(errs...)
}

// removeTree removes a cgroup below which are others; of files the kernel takes
// care.
func removeTree(cgroup string) error {
	entries, err := os.ReadDir(cgroup)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(cgroup, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(cgroup); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", cgroup, err)
	}
	return nil
}
