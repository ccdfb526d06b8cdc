module senko.test/chunks

go 1.25.0

require github.com/grafana/gomemcache v0.0.0-20251127154401-74f93547077b
