// Command bundle makes the page's files in internal/ui/dist of its sources in internal/ui/web.
package main

import (
	"fmt"
	"os"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	// Browsers of 2023: nested CSS, top-level await.
	result := api.Build(api.BuildOptions{
		EntryPoints: []string{"web/main.tsx", "web/page.css"}, Outdir: "dist", Bundle: true, Write: true,
		Format: api.FormatESModule, Target: api.ES2022, Charset: api.CharsetUTF8,
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true, LegalComments: api.LegalCommentsEndOfFile,
		JSX: api.JSXAutomatic, JSXImportSource: "preact", LogLevel: api.LogLevelWarning,
	})
	if len(result.Errors) > 0 {
		os.Exit(1) // esbuild has said why
	}
	for _, name := range []string{"index.html", "icon.svg"} {
		data, err := os.ReadFile("web/" + name)
		if err == nil {
			err = os.WriteFile("dist/"+name, data, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
