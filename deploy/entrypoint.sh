#!/bin/sh
# `serve` with what the environment says; any other command of ridgerank as it is typed.
set -eu

if [ $# -eq 0 ] || [ "${1#-}" != "$1" ]; then
    set -- serve "$@"
fi
if [ "$1" != serve ]; then
    exec ridgerank "$@"
fi
shift

store=${RIDGERANK_STORE:-/data/pages}
case $store in
    *://*) ;;
    *)
        if [ ! -d "$store" ]; then
            echo "no page store at $store; mount one there, or say where with RIDGERANK_STORE" >&2
            exit 2
        fi
        ;;
esac

if [ -n "${RIDGERANK_API_KEY_FILE:-}" ]; then
    set -- --api-key-file "$RIDGERANK_API_KEY_FILE" "$@"
elif [ "${RIDGERANK_NO_AUTH:-}" = 1 ]; then
    set -- --no-auth "$@"
else
    echo "no keys: give RIDGERANK_API_KEY_FILE (one key a line), or RIDGERANK_NO_AUTH=1 if anyone may call" >&2
    exit 2
fi

exec ridgerank serve --store "$store" --host 0.0.0.0 --port "${RIDGERANK_PORT:-8080}" --json-logs "$@"
