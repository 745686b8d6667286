// Command bundle makes the page's files in internal/ui/dist of its sources in internal/ui/web.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	if err := bundle(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func bundle() error {
	result := api.Build(api.BuildOptions{
		EntryPoints: []string{"web/main.tsx", "web/page.css"}, Outdir: "dist", Bundle: true, Write: true,
		Format: api.FormatESModule, Target: api.ES2022, Charset: api.CharsetUTF8,
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true, LegalComments: api.LegalCommentsEndOfFile,
		JSX: api.JSXAutomatic, JSXImportSource: "preact", LogLevel: api.LogLevelWarning,
	})
	if len(result.Errors) > 0 {
		return errors.New("esbuild failed") // it has said why
	}
	for _, name := range []string{"index.html", "icon.svg"} {
		data, err := os.ReadFile(filepath.Join("web", name))
		if err == nil {
			err = os.WriteFile(filepath.Join("dist", name), data, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return writeLicences()
}

// described is what a package.json says.
type described struct {
	Name, Version, License string
	Dependencies           map[string]string
}

func describe(dir string) (d described, err error) {
	data, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err == nil {
		err = json.Unmarshal(data, &d)
	}
	return d, err
}

// writeLicences says what is in the bundle, and under which licence.
func writeLicences() error {
	page, err := describe("web")
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(page.Dependencies)) {
		dir := filepath.Join("web/node_modules", name)
		d, err := describe(dir)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s %s: %s\n", d.Name, d.Version, d.License)
		licence, err := os.ReadFile(filepath.Join(dir, "LICENSE"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		text.Write(licence)
	}
	return os.WriteFile("dist/licences.txt", []byte(text.String()), 0o644)
}
