# longtune_module(<module> SOURCES a.cpp ... [TESTS a_test.cpp ...] [DEPS other ...] [LIBS ...] [LABELS ...])
# Called from src/<module>/CMakeLists.txt, paths relative to it. Makes library longtune_<module> and,
# from TESTS, executable <module>_tests. DEPS is the module's whole right to include;
# tools/check_includes.py reads the same DEPS.
function(longtune_module module)
  cmake_parse_arguments(ARG "" "" "SOURCES;TESTS;DEPS;LIBS;LABELS" ${ARGN})
  add_library(longtune_${module} STATIC ${ARG_SOURCES})
  target_include_directories(longtune_${module} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  list(TRANSFORM ARG_DEPS PREPEND longtune_)
  target_link_libraries(longtune_${module} PUBLIC ${ARG_DEPS} ${ARG_LIBS} PRIVATE longtune_flags)
  if(BUILD_TESTING AND ARG_TESTS)
    add_executable(${module}_tests ${ARG_TESTS})
    target_link_libraries(${module}_tests PRIVATE longtune_${module} longtune_test_support longtune_flags GTest::gtest_main)
    gtest_discover_tests(${module}_tests TEST_PREFIX ${module}. PROPERTIES LABELS "unit;${ARG_LABELS}" DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
