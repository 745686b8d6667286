// Package grafana holds the dashboards. tools/grafana makes them.
package grafana

//go:generate ../../tools/grafana/generate.sh .
