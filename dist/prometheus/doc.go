// Package prometheus holds alerts, and the tests of these and of the dashboards in
// dist/grafana.
package prometheus
