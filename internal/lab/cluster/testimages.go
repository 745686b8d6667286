package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/culvert-net/culvert/internal/image"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/namespace"
)

// Programs of a cluster whose suites are run.
const (
	TestProgram = "e2e.test"
	agnhost     = "agnhost"
	coredns     = "coredns"
)

// What the tests' pods run beside agnhost, from the machine's packages: busybox has the rest.
var testTools = []string{"bash", "curl", "dig", "getent", "nc", "ss"}

// madeImages are those of e2e.test's images that the lab makes, by the names of their
// repositories. All are the same one: agnhost and a system around it. Tests that need others
// fail for want of them, and say so.
var madeImages = []string{"agnhost", "busybox", "glibc-dns-testing", "pause"}

// HaveSuites wants all programs to be there that suites need.
func HaveSuites() error {
	errs := []error{}
	for _, name := range []string{TestProgram, agnhost, coredns} {
		if err := HavePrograms(name); err != nil {
			errs = append(errs, fmt.Errorf("%w; with `conformance`, what suites need", err))
		}
	}
	for _, name := range testTools {
		if _, err := exec.LookPath(name); err != nil {
			errs = append(errs, fmt.Errorf("%s is not installed: tools/need.sh e2e installs it", name))
		}
	}
	return errors.Join(errs...)
}

// writeTestImages writes archives of the images that suites need.
func writeTestImages(ctx context.Context, in *instance.Instance) error {
	files, err := testFiles(in)
	if err != nil {
		return err
	}
	out, err := namespace.Output(exec.CommandContext(ctx, filepath.Join(Programs(), TestProgram), "--list-images"))
	if err != nil {
		return err
	}
	for repository, name := range newest(strings.Fields(string(out))) {
		i := image.Image{Name: name, Files: files, Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}
		if repository == "busybox" {
			i.Entrypoint, i.Cmd = nil, []string{"sh"}
		}
		if err := i.Write(filepath.Join(Images(in), "test-"+regexp.MustCompile(`\W+`).ReplaceAllString(name, "-")+".tar")); err != nil {
			return err
		}
	}
	dns := image.Image{Name: dnsImage, Files: []image.File{{Path: "/coredns", From: filepath.Join(Programs(), coredns)}}, Entrypoint: []string{"/coredns"}}
	return dns.Write(filepath.Join(Images(in), "coredns.tar"))
}

// newest are the newest of the images that the lab makes, by repository: those before are for
// tests of upgrades.
func newest(names []string) map[string]string {
	found, versions := map[string]string{}, map[string]*version.Version{}
	for _, name := range names {
		repository, tag, _ := strings.Cut(name[strings.LastIndexByte(name, '/')+1:], ":")
		v, err := version.ParseGeneric(tag)
		if err != nil || !slices.Contains(madeImages, repository) {
			continue
		}
		if was := versions[repository]; was == nil || was.LessThan(v) {
			found[repository], versions[repository] = name, v
		}
	}
	return found
}

// testFiles are agnhost and what it serves HTTPS with, busybox by its other names, and tools with
// their libraries. The shell is bash: busybox's own takes nc for busybox's, too.
func testFiles(in *instance.Instance) ([]image.File, error) {
	program, api := filepath.Join(Programs(), agnhost), in.APIServer()
	files := []image.File{
		{Path: "/agnhost", From: program}, {Path: "/agnhost-2", Link: "agnhost"}, {Path: busybox, From: busybox}, {Path: "/bin/sh", Link: "bash"},
		{Path: "/localhost.crt", From: in.File(api, "localhost.crt")}, {Path: "/localhost.key", From: in.File(api, "localhost.key")},
	}
	names, err := namespace.Output(exec.Command(busybox, "--list"))
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(string(names)) {
		if name != "busybox" && name != "sh" && !slices.Contains(testTools, name) {
			files = append(files, image.File{Path: "/bin/" + name, Link: "busybox"})
		}
	}
	there := map[string]bool{}
	for _, name := range testTools {
		program, err := exec.LookPath(name)
		if err != nil {
			return nil, err
		}
		files = append(files, image.File{Path: "/bin/" + name, From: program})
		libraries, err := librariesOf(program)
		if err != nil {
			return nil, err
		}
		for _, library := range libraries {
			if !there[library] {
				there[library] = true
				files = append(files, image.File{Path: library, From: library})
			}
		}
	}
	return files, nil
}

// library is a path in what ldd prints.
var library = regexp.MustCompile(`(?m)(?:=> |^\s*)(/\S+) \(0x`)

// librariesOf are what the loader finds for a program, and the loader.
func librariesOf(program string) (files []string, err error) {
	out, err := namespace.Output(exec.Command("ldd", program))
	if err != nil {
		return nil, err
	}
	for _, m := range library.FindAllStringSubmatch(string(out), -1) {
		files = append(files, m[1])
	}
	return files, nil
}
