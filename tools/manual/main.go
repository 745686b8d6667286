// Manual writes what is made of the command tree: manual pages, and completion for
// shells.
//
//	go run ./tools/manual FOLDER
//
// FOLDER/culvert and FOLDER/culvert-lab get the pages of these programs, and
// FOLDER/completion what shells load. SOURCE_DATE_EPOCH dates the pages.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/culvert-net/culvert/internal/cli"
	"github.com/culvert-net/culvert/internal/labcli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "culvert: want the folder to write")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "culvert:", err)
		os.Exit(1)
	}
}

// write leaves out the pages of commands that only run the other program, and of the other
// program's root, which has the same name.
func write(folder string) error {
	lab := labcli.New("")
	var others []string
	for _, c := range lab.Commands() {
		if c.IsAvailableCommand() { // "help" has no page
			others = append(others, "culvert-"+c.Name()+".1")
		}
	}
	return errors.Join(
		pages(cli.New(""), filepath.Join(folder, "culvert"), others...),
		pages(lab, filepath.Join(folder, "culvert-lab"), "culvert.1"),
		completion(cli.New(""), filepath.Join(folder, "completion")))
}

// pages writes a page for each command that users see, without some.
func pages(root *cobra.Command, folder string, without ...string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	root.DisableAutoGenTag = true // else each page names its generator
	header := &doc.GenManHeader{Source: "Culvert", Manual: "Culvert"}
	if err := doc.GenManTree(root, header, folder); err != nil {
		return err
	}
	for _, name := range without {
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	return nil
}

// completion writes a file for each shell, named as the shell looks for it.
func completion(root *cobra.Command, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return errors.Join(
		root.GenBashCompletionFileV2(filepath.Join(folder, "culvert"), true),
		root.GenZshCompletionFile(filepath.Join(folder, "_culvert")),
		root.GenFishCompletionFile(filepath.Join(folder, "culvert.fish"), true))
}
