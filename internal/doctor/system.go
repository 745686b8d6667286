package doctor

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/netdev"
)

// The oldest kernel that the data path is tested on.
const minMajor, minMinor = 6, 6

func kernelVersion() Check {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Check{Name: "kernel version", Level: Fail, Detail: err.Error()}
	}
	return kernelRelease(unix.ByteSliceToString(u.Release[:]))
}

func kernelRelease(release string) Check {
	var major, minor int
	_, err := fmt.Sscanf(release, "%d.%d", &major, &minor)
	return check("kernel version", release,
		problem{err != nil, Warn, fmt.Sprintf("%q does not begin with a version", release), remedy{}},
		problem{major < minMajor || major == minMajor && minor < minMinor, Fail, release, advice("install Linux %d.%d or newer", minMajor, minMinor)})
}

// features makes a check of each probe, in the order of their names.
func features(probes map[string]error) (checks []Check) {
	for _, name := range slices.Sorted(maps.Keys(probes)) {
		checks = append(checks, check("kernel: "+name, "there", problem{probes[name] != nil, Fail,
			strings.ReplaceAll(fmt.Sprint(probes[name]), "\n", "; "),
			advice("use a kernel that is built with it (docs/how-to/operate.md says what is needed)")}))
	}
	return checks
}

// capability is one that the daemon needs, and what for.
type capability struct {
	bit   int
	name  string
	level Level
	why   string
}

var needed = []capability{
	{unix.CAP_BPF, "CAP_BPF", Fail, "to load the data path"},
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", Fail, "to attach it to interfaces"},
	{unix.CAP_PERFMON, "CAP_PERFMON", Fail, "for the verifier to allow pointer arithmetic"},
	{unix.CAP_NET_RAW, "CAP_NET_RAW", OK, "only to send ICMP errors and GTP-U Error Indications by devices that frames cannot be redirected to"},
}

// neededByMember is what a member of a cluster needs beside.
var neededByMember = capability{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", Warn, "to tell pods a new MTU when a path gets longer: their network namespaces have to be entered"}

// neededToSpread is what the daemon needs beside where packets are spread over CPUs.
var neededToSpread = capability{unix.CAP_SYS_NICE, "CAP_SYS_NICE", Warn, "to have the threads that handle spread packets run before other tasks: they lose packets while the machine is busy"}

// Lacks returns which of some capabilities this process has not. One that it does not know of, or
// cannot look for, is not among them.
func Lacks(names ...string) (missing []string) {
	effective, err := effectiveCapabilities(procfs)
	for _, c := range needed {
		if err == nil && slices.Contains(names, c.name) && effective&(1<<c.bit) == 0 {
			missing = append(missing, c.name)
		}
	}
	return missing
}

// effectiveCapabilities are those of this process, one bit each.
func effectiveCapabilities(proc string) (uint64, error) {
	path := filepath.Join(proc, "self/status")
	status, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strconv.ParseUint(strings.TrimSpace(v), 16, 64)
		}
	}
	return 0, fmt.Errorf("no CapEff in %s", path)
}

// capabilities looks for those that the daemon needs, and for others beside.
func capabilities(proc string, others ...capability) []Check {
	effective, err := effectiveCapabilities(proc)
	if err != nil {
		return []Check{{Name: "capabilities", Level: Warn, Detail: err.Error()}}
	}
	var checks []Check
	var names, why []string
	for _, n := range slices.Concat(needed, others) {
		isMissing := effective&(1<<n.bit) == 0
		if isMissing && n.level == Fail {
			names, why = append(names, n.name), append(why, n.name+" "+n.why)
			continue
		}
		missing := problem{isMissing, n.level, "missing: needed " + n.why, remedy{}}
		if n.level != OK {
			missing.remedy = advice("run as root, or with AmbientCapabilities=%s in the systemd unit", n.name)
		}
		checks = append(checks, check("capability "+n.name, "held", missing))
	}
	if len(names) == 0 {
		return checks
	}
	lacking := check("privileges", "", problem{true, Fail, "missing: " + strings.Join(why, ", ") + "; without them the kernel's features cannot be tried",
		advice("run as root; the daemon needs AmbientCapabilities=%s in its systemd unit", strings.Join(names, " "))})
	return append([]Check{lacking}, checks...)
}

func bpffs(path string) Check {
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	detail := "not mounted on " + path + ": the data path could not outlive the daemon"
	if err != nil {
		detail += " (" + err.Error() + ")"
	}
	return check("bpffs", "mounted on "+path,
		problem{err != nil || st.Type != unix.BPF_FS_MAGIC, Fail, detail, command("mount -t bpf bpf %s", path)})
}

// jit: an interpreted data path is several times slower.
func jit(proc string) Check {
	on := command("sysctl -w net.core.bpf_jit_enable=1")
	v := netdev.Sysctl(proc, "net.core.bpf_jit_enable")
	return check("BPF JIT", "on",
		problem{v == "2", Warn, "on, and writing what it makes to the kernel log", on},
		problem{v == "", Warn, "cannot be seen (net.core.bpf_jit_enable is not there)", remedy{}},
		problem{v != "1", Warn, "off: programs are interpreted", on})
}

// forwarding: packets whose next hop only the kernel can reach are passed to
// it, finished; without forwarding it drops them. That is a fault of a machine with a configuration.
func forwarding(proc string, v4, v6, configured bool) (checks []Check) {
	level := Warn
	if configured {
		level = Fail
	}
	for _, name := range netdev.ForwardingKeys(v4, v6) {
		checks = append(checks, check(name, "on", problem{netdev.Sysctl(proc, name) != "1", level,
			"off: packets that only the kernel can send on (next hop not resolved yet, devices without XDP) are lost",
			command("sysctl -w %s=1", name)}))
	}
	return checks
}

// rpFilter: a decapsulated packet that is passed to the kernel comes, as the
// kernel sees it, from the interface of the tunnel's outer packet. A strict
// filter drops it if the way back is another one.
func rpFilter(proc, name string) Check {
	return check(name+": reverse path filter", "not strict", problem{netdev.FiltersStrictly(proc, name), Warn,
		"strict: what is passed to the kernel after decapsulation may be dropped there", command("sysctl -w %s=2", netdev.SysctlOf(name, "rp_filter"))})
}

// acceptLocal: a packet with GTP-U over IPv4 that is passed to the kernel,
// finished, comes in from outside as the kernel sees it, with a source that is
// the node's own: a martian, dropped unless one of the two values is set
// (Linux, ip-sysctl). IPv6 has no such check.
func acceptLocal(proc, name string) Check {
	own := netdev.SysctlOf(name, "accept_local")
	refused := max(netdev.Sysctl(proc, own), netdev.Sysctl(proc, netdev.SysctlOf("all", "accept_local"))) <= "0"
	return check(name+": own source addresses", "are taken by the kernel", problem{refused, Warn,
		"are martian to the kernel: GTP-U over IPv4 that only it can send on (devices without XDP, the first frames of Ethernet sessions to a peer) is lost",
		command("sysctl -w %s=1", own)})
}
