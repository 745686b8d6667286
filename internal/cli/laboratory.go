package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/cmdline"
)

// laboratoryProgram holds the commands lab, bench, smf and gnb.
const laboratoryProgram = "culvert-lab"

// laboratory are the commands that culvert-lab holds. culvert-lab replaces this
// process, so that its output, exit code and signals are the user's.
func laboratory() []*cobra.Command {
	var list []*cobra.Command
	for _, c := range []struct{ name, short string }{
		{"lab", "Small networks on this machine: namespaces, SRv6 routers, checks with real traffic"},
		{"bench", "Measure what packets cost on this machine"},
		{"smf", "A small SMF for laboratories: drive any UPF over N4"},
		{"gnb", "A gNB with UEs, to try a UPF by hand"},
	} {
		stub := &cobra.Command{
			Use: c.name, Short: c.short, DisableFlagParsing: true,
			Long: c.short + ".\n\nThe program " + laboratoryProgram + " holds this command.",
			RunE: func(*cobra.Command, []string) error { return becomeLaboratory() },
			ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
				cobra.CompErrorln(becomeLaboratory().Error())
				return nil, cobra.ShellCompDirectiveError
			},
		}
		stub.SetHelpFunc(func(stub *cobra.Command, _ []string) { // of `culvert help lab`
			stub.Println(stub.Long, "\n\nculvert:", becomeLaboratory())
		})
		list = append(list, stub)
	}
	return list
}

// becomeLaboratory runs culvert-lab in this process, with the same arguments. It
// returns only if that fails.
func becomeLaboratory() error {
	path, err := cmdline.Program(laboratoryProgram)
	if err != nil {
		return err
	}
	return fmt.Errorf("cannot run %s: %w", path, unix.Exec(path, append([]string{path}, os.Args[1:]...), os.Environ()))
}
