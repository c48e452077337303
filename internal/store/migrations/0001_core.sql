-- +goose Up
CREATE TABLE sandboxes (
	id            TEXT PRIMARY KEY,
	seq           INTEGER NOT NULL UNIQUE, -- order of creation; ids carry none
	name          TEXT UNIQUE,             -- NULL: none; a removed row frees its name
	spec          TEXT NOT NULL,           -- JSON of sos.SandboxSpec
	desired       TEXT NOT NULL,
	status        TEXT NOT NULL,
	reason        TEXT NOT NULL,
	message       TEXT NOT NULL,
	image_digest  TEXT NOT NULL,
	created_at    INTEGER NOT NULL,        -- this and all times: nanoseconds since 1970, UTC
	started_at    INTEGER,
	stopped_at    INTEGER,
	expires_at    INTEGER,
	session_command_count     INTEGER NOT NULL,
	last_standalone_exit_code INTEGER
) STRICT;

CREATE TABLE sessions (
	sandbox    TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
	name       TEXT NOT NULL,
	status     TEXT NOT NULL,
	exit_code  INTEGER,
	created_at INTEGER NOT NULL,
	ended_at   INTEGER,
	PRIMARY KEY (sandbox, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE processes (
	id          TEXT PRIMARY KEY,
	sandbox     TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
	seq         INTEGER NOT NULL, -- order within the sandbox
	kind        TEXT NOT NULL,
	session     TEXT NOT NULL,
	command     TEXT NOT NULL,
	argv        TEXT,             -- JSON array or NULL
	status      TEXT NOT NULL,
	created_at  INTEGER NOT NULL,
	started_at  INTEGER,
	ended_at    INTEGER,
	since_start INTEGER NOT NULL, -- nanoseconds
	exit_code   INTEGER,
	signal      TEXT NOT NULL,
	reason      TEXT NOT NULL,
	message     TEXT NOT NULL,
	oom_killed  INTEGER NOT NULL,
	shell_ended INTEGER NOT NULL,
	survivors   INTEGER NOT NULL,
	session_restarted INTEGER NOT NULL,
	output      TEXT              -- JSON array of sos.Output or NULL
) STRICT;

CREATE INDEX processes_by_sandbox ON processes (sandbox, seq);

-- +goose Down
DROP TABLE processes;
DROP TABLE sessions;
DROP TABLE sandboxes;
