# shellcheck shell=bash disable=SC2154,SC2034
prepare_kasan() { die 'not yet'; }
